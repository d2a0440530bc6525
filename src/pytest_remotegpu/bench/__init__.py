"""Benchmarks of GPU code, and the thresholds that they decide."""
