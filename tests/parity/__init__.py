"""The parity suite: a corpus of projects run plainly and through the plugin, and compared.

It knows pytest's public results (reports, junit, terminal text) and nothing of the plugin's inside.
"""
