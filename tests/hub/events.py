"""Events as GitHub sends them, and documents as benchmarks leave them."""

from __future__ import annotations

from typing import Any

from hub.state import REPOSITORY, user

NUMBER = 7
BEFORE, WHEN, AFTER = "2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z", "2026-05-01T11:00:01Z"
"""A push, the comment, and a push after that."""


def comment(body: Any, login: str = "ann", **more: Any) -> dict[str, Any]:
    """Make the event of a comment on pull request 7."""
    event = {
        "action": "created",
        "issue": {
            "number": NUMBER,
            "title": "$(touch owned)",
            "state": "open",
            "user": user("stranger"),
            "pull_request": {"url": f"https://api.github.com/repos/{REPOSITORY}/pulls/{NUMBER}"},
        },
        "comment": {
            "id": 501,
            "user": user(login),
            "body": body,
            "created_at": WHEN,
            "updated_at": WHEN,
            "author_association": "OWNER",  # whatever it says
        },
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
        "sender": user(login),
    }
    return {**event, **more}


def document(**more: Any) -> dict[str, Any]:
    """Make a document of a benchmark on an A100, with the keys that have long been there."""
    rows = [
        ("sliding", 256, 64, 0.8, 0.2, 0.25),
        ("sliding", 512, 64, 1.1, 0.4, 0.3636),
        ("sliding", 1024, 64, 1.5, 0.9, 0.6),
        ("compressed", 1024, None, 0.7, 0.3, 0.4286),
    ]
    keys = ("branch", "sequence_length", "window_size", "speedup", "masked_ms", "fa2_ms")
    made = {
        "device_info": {
            "cuda_available": True,
            "device_name": "NVIDIA A100-SXM4-40GB",
            "torch_version": "2.11.0",
            "cuda_version": "13.0",
            "flash_available": True,
        },
        "parity_passed": True,
        "parity_output": "all fine",
        "benchmark_output": "",
        "selection_output": "",
        "recommendation": {
            "fa2_min_len_win": 1024,
            "fa2_min_len_cmp": 999999,
            "sel_triton_min_L": None,
        },
        "results": [dict(zip(keys, row, strict=True)) for row in rows],
        "timestamp": "2026-05-01T11:30:00Z",
    }
    return {**made, **more}
