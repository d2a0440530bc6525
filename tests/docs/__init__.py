"""Pages as their readers use them: blocks are run, names and links are checked."""
