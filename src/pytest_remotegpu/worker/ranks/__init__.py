"""Tests of several processes: ranks in lock-step, and one result of what all of them said.

``launcher`` starts the ``team`` and leads it, ``rank`` is a runner that belongs to one, ``merge``
makes one account out of many. Knows runners and events; nothing of the user's side.
"""
