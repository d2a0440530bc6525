"""The suites of the corpus are run by the tests, and are none of these."""

from __future__ import annotations

collect_ignore = ["corpus"]
