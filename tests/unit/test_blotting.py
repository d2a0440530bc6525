"""What a log that may be published shows of secrets: that there was one."""

from __future__ import annotations

import pytest

from pytest_remotegpu.blotting import blotted, blotted_words, values_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--token=abc -v", "--token=*** -v"),
        ("--api-key 'a b' -v", "--api-key *** -v"),
        ("--hf-token abc tests", "--hf-token *** tests"),
        ("-o db_password=hunter2", "-o db_password=***"),
        (
            "docker run -e HF_HOME=/x -e WANDB=zzz image",
            "docker run -e HF_HOME=*** -e WANDB=*** image",
        ),
        ("DB_PWD: abc", "DB_PWD: ***"),
        ("env MY_VALUE='a b' python", "env MY_VALUE=*** python"),
        ("postgres://user:pa55@host:5432/db", "postgres://user:***@host:5432/db"),
        ("https://ghp_x@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("--index=https://u:p%40@h/simple", "--index=https://u:***@h/simple"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("{'client_secret': 'abc', 'n': 1}", "{'client_secret': ***, 'n': 1}"),
        ('{"token":"abc"}', '{"token":***}'),
        ("got hf_abcdefghijklmnopqrst there", "got *** there"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.abc-_def", "***"),
        ("ak-abcdefghijklmnopqrstuv", "***"),
        ("docker run -eMODE=abc image", "docker run -eMODE=*** image"),
        ("run pw=abc --pass abc ?key=abc&n=1", "run pw=*** --pass *** ?key=***&n=1"),
        ("sshpass -p abc ssh box", "sshpass -p *** ssh box"),
        ("curl -u me:abc --proxy-user='me:a b' x", "curl -u me:*** --proxy-user='me:***' x"),
        ("ssh:user:abc@gpubox", "ssh:user:***@gpubox"),
    ],
)
def test_what_is_blotted_out(text: str, shown: str) -> None:
    assert blotted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -- gpubox python3 -m pytest_remotegpu.worker",
        "pytest --remote=ssh:gpubox -k 'far and not near' tests/test_tokens.py::test_secret[1]",
        "Hello(protocol=7, package='0.1', python='3.11', gpus=(), extra={'torch': '2'})",
        "tests/test_token.py:12: AssertionError",
        "https://example.org/a@b and me@example.org",
        "--remote=ssh:me@gpubox -u me, image python:3.12@sha256:0123abc",
        "test_a.py::test_key monkey=1 --monkey bar -k bypass",
        "local-1: Collected(seconds=0.5, root=b'/home/me/project')",
    ],
)
def test_what_is_not(text: str) -> None:
    """The rest can be read."""
    assert blotted(text) == text


def test_values_that_are_known() -> None:
    """Of variables whose names say so, and of those that are passed on; short ones are not."""
    environ = {
        "HF_TOKEN": "planted-1", "DB_PASS": "planted-2", "MY_APP_MODE": "planted-3",
        "SSH_KEY": "planted-longest", "HOME": "/home/me", "KEYBOARD": "querty", "MY_APP_N": "1",
        "PWD": "/home/me", "OLDPWD": "/home/you",
    }  # fmt: skip
    values = values_of(environ, ["MY_APP_*"])
    assert values == ["planted-longest", "planted-1", "planted-2", "planted-3"] or (
        values[0] == "planted-longest"
        and sorted(values[1:]) == ["planted-1", "planted-2", "planted-3"]
    )
    assert blotted("x planted-3 /home/me querty 1", values) == "x *** /home/me querty 1"


def test_words_of_a_command() -> None:
    """A value may be a word of its own, with blanks in it."""
    words = ["run", "--token", "a b", "--pass", "x", "--keyword", "kept", "-k", "token", "--secret"]
    assert blotted_words(words) == [
        "run", "--token", "***", "--pass", "***", "--keyword", "kept", "-k", "token", "--secret",
    ]  # fmt: skip
