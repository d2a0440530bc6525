"""A package of tests."""
