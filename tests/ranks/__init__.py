"""Tests of several ranks: whole sessions on this host's CPU, and what becomes of what ranks say."""
