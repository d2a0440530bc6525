"""Debuggers in shipped tests, with somebody at the terminal and without."""
