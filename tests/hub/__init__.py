"""A GitHub on this machine: one repository behind the interface that its jobs speak to.

Strict: it takes what GitHub documents, and complains of all else. It can be slow, broken or busy.
"""
