"""Sessions of several processes, with pytest-xdist: what they run, say, and leave at their ends."""
