"""Tests of the loopback Modal service, each with the real client and real containers."""
