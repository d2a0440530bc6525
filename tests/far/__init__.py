"""Collection on the far side: what sessions with it show, and that nothing there goes missing."""
