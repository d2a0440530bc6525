"""Sessions where others have their say: command lines, places, tools, tests of tests."""
