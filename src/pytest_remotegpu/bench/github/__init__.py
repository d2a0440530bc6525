"""Benchmarks that comments and dispatches on GitHub ask for: who may, what is said of them."""
