"""Modules of fixtures."""
