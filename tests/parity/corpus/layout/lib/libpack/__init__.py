"""Found through the pythonpath setting."""

NAME = "libpack"
