"""The pytest plugin (placeholder while the house is built)."""
