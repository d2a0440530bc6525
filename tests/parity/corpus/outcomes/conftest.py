"""Registers a helper module for assertion rewriting, as many projects do."""

import pytest

pytest.register_assert_rewrite("checks")
