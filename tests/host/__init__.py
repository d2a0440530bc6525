"""The warm process, this host's cards and the command: longer tests, in a step of their own."""
