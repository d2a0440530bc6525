"""A package that lies below `src`, with its tests in it."""

VALUE = 42
