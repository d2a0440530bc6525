"""Test suites of other projects, unchanged: run plainly, and with all of their tests far away."""
