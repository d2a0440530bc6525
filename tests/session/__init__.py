"""Whole sessions, run as a user would; a package, since a unit test may bear the same name."""
