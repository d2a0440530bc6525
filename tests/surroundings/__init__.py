"""Sessions where others have their say: odd command lines and places, other tools, tests of tests."""
