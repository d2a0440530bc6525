"""CI's gate: who may have which commit run, told from events as GitHub sends them.

The script asks a server on this machine, which answers as GitHub's interface does.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

GATE = Path(__file__).parents[2] / ".ci" / "gate.py"
HEAD, LATER, BASE = "a" * 40, "b" * 40, "c" * 40
PULL, PERMISSION = "/repos/our/house/pulls/7", "/repos/our/house/collaborators/ann/permission"
LABEL = "/repos/our/house/issues/7/labels/"
TOKEN = "t0ken-of-the-job"  # noqa: S105 - the server here wants to see it
ASKED = {"GPU": "T4", "MARKERS": "gpu", "KEYWORDS": "", "MAX_COST": "2.50"}


@dataclass
class GitHub:
    """What the interface answers, and what it was asked.

    :ivar answers: for ``METHOD path`` the status and the body; 404 for anything else.
    """

    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    url: str = ""

    def will(self, path: str, answer: Any, status: int = 200, method: str = "GET") -> None:
        """Answer *path* so from now on."""
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answers[f"{method} {path}"] = (status, body)


@pytest.fixture
def github() -> Iterator[GitHub]:
    """Serve a repository whose pull request 7 was labelled by ann, who may write."""
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what = f"{self.command} {self.path}"
            state.asked.append(what)
            state.tokens.add(self.headers.get("Authorization", ""))
            status, body = state.answers.get(what, (404, b'{"message": "Not Found"}'))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_GET  # noqa: N815 - the name is http.server's

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        state.will(PULL, pull())
        state.will(PERMISSION, permission("write"))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def pull(sha: str = HEAD, state: str = "open", labels: tuple[str, ...] = ("gpu-tests",)) -> Any:
    """Make a pull request as the interface describes it, from a fork."""
    return {
        "url": "https://api.github.com/repos/our/house/pulls/7",
        "id": 1,
        "number": 7,
        "state": state,
        "locked": False,
        "title": "$(touch owned) `touch owned`",
        "user": {"login": "stranger", "id": 9, "type": "User"},
        "labels": [{"id": 208045946, "name": name, "color": "f29513"} for name in labels],
        "draft": False,
        "head": {
            "label": "stranger:patch",
            "ref": "patch",
            "sha": sha,
            "repo": {"full_name": "stranger/house", "fork": True},
        },
        "base": {
            "label": "our:main",
            "ref": "main",
            "sha": BASE,
            "repo": {"full_name": "our/house", "fork": False},
        },
        "author_association": "NONE",
        "merged": False,
    }


def permission(word: str, login: str = "ann") -> Any:
    """Make an answer to what somebody may do."""
    user = {"login": login, "id": 3, "type": "User"}
    return {"permission": word, "role_name": word, "user": user}


def labelled(label: str | None = "gpu-tests", **changes: Any) -> dict[str, Any]:
    """Make the event of a label that ann has set."""
    event = {
        "action": "labeled",
        "number": 7,
        "pull_request": pull(),
        "label": {"id": 208045946, "name": label, "color": "f29513", "default": False},
        "repository": {"id": 5, "full_name": "our/house", "default_branch": "main", "fork": False},
        "sender": {"login": "ann", "id": 3, "type": "User", "site_admin": False},
    }
    return {**event, **changes}


def pushed() -> dict[str, Any]:
    """Make the event of a push to that pull request."""
    event = labelled(action="synchronize", before=HEAD, after=LATER, pull_request=pull(LATER))
    event["sender"] = {"login": "stranger", "id": 9, "type": "User"}
    del event["label"]
    return event


@dataclass
class Said:
    """What the script said: its exit status, its log, and its outputs."""

    status: int
    log: str
    outputs: dict[str, str]


@pytest.fixture
def gate(
    github: GitHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Return a function that runs the script for an event."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    spec = importlib.util.spec_from_file_location("gate", GATE)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def run(event: Any, name: str = "pull_request_target", do: str = "judge", **more: str) -> Said:
        path, output = tmp_path / "event.json", tmp_path / "output"
        path.write_text(event if isinstance(event, str) else json.dumps(event), encoding="utf-8")
        output.write_bytes(b"")
        told = {
            "GITHUB_API_URL": github.url,
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_REPOSITORY": "our/house",
            "GITHUB_SHA": BASE,
            "GITHUB_TOKEN": TOKEN,
        }
        status = script.main([do], {**told, **ASKED, **more})
        log, trouble = capsys.readouterr()
        assert trouble == ""
        assert TOKEN not in log
        lines = output.read_text(encoding="utf-8").splitlines()
        return Said(status, log, dict(line.split("=", 1) for line in lines))

    return run


@pytest.mark.parametrize("label", ["gpu-tests", "modal-tests"])
@pytest.mark.parametrize("word", ["write", "admin"])
def test_label_of_a_maintainer_runs_the_commit_that_was_labelled(
    gate: Any, github: GitHub, label: str, word: str
) -> None:
    github.will(PULL, pull(labels=("docs", label)))
    github.will(PERMISSION, permission(word))
    said = gate(labelled(label))
    assert said.status == 0, said.log
    assert said.outputs == {
        "allowed": "true",
        "sha": HEAD,
        "number": "7",
        "gpu": "T4",
        "markers": "gpu",
        "keywords": "",
        "max-cost": "2.50",
    }
    assert github.asked == [f"GET {PERMISSION}", f"GET {PULL}"]
    assert github.tokens == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("word", ["read", "none", "triage", "", None, 1, ["write"]])
def test_label_of_anybody_else_is_refused(gate: Any, github: GitHub, word: Any) -> None:
    github.will(PERMISSION, permission(word))
    said = gate(labelled())
    assert (said.status, said.outputs) == (1, {})
    assert "::error::refused: " in said.log


def test_permission_is_that_of_who_set_the_label_not_of_the_author(
    gate: Any, github: GitHub
) -> None:
    github.will(
        "/repos/our/house/collaborators/stranger/permission", permission("read", "stranger")
    )
    said = gate(labelled(sender={"login": "stranger", "type": "User"}))
    assert (said.status, said.outputs) == (1, {})
    assert "stranger set the label gpu-tests and has the permission 'read'" in said.log


def test_bot_that_is_no_collaborator_is_refused(gate: Any, github: GitHub) -> None:
    said = gate(labelled(sender={"login": "renovate[bot]", "type": "Bot"}))
    assert (said.status, said.outputs) == (1, {})
    assert github.asked == ["GET /repos/our/house/collaborators/renovate%5Bbot%5D/permission"]


def test_answer_about_somebody_else_is_refused(gate: Any, github: GitHub) -> None:
    github.will(PERMISSION, permission("admin", "bob"))
    said = gate(labelled())
    assert (said.status, said.outputs) == (1, {})
    assert "somebody else" in said.log


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (pull(LATER), f"the head is {LATER} now"),
        (pull(state="closed"), "the pull request is closed"),
        (pull(labels=("docs",)), "is gone again"),
        ({**pull(), "labels": None}, "is gone again"),
        ({**pull(), "head": None}, "head.sha is None"),
    ],
    ids=["pushed since", "closed", "label gone", "no labels", "no head"],
)
def test_pull_request_that_has_changed_since_is_refused(
    gate: Any, github: GitHub, now: Any, word: str
) -> None:
    github.will(PULL, now)
    said = gate(labelled())
    assert (said.status, said.outputs) == (1, {})
    assert word in said.log


@pytest.mark.parametrize("path", [PULL, PERMISSION])
@pytest.mark.parametrize("status", [302, 401, 403, 404, 429, 500, 503])
def test_error_of_the_interface_is_a_no(gate: Any, github: GitHub, path: str, status: int) -> None:
    github.will(path, f"{github.url}/elsewhere".encode(), status)
    said = gate(labelled())
    assert (said.status, said.outputs) == (1, {})
    assert f"GitHub answered {status}" in said.log
    assert "GET /elsewhere" not in github.asked


@pytest.mark.parametrize("path", [PULL, PERMISSION])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'"write"', b"\xff", b"{}"])
def test_odd_answer_is_a_no(gate: Any, github: GitHub, path: str, body: bytes) -> None:
    github.will(path, body)
    said = gate(labelled())
    assert (said.status, said.outputs) == (1, {})
    assert "::error::refused: " in said.log


def test_interface_that_is_not_there_is_a_no(gate: Any) -> None:
    said = gate(labelled(), GITHUB_API_URL="http://127.0.0.1:1")
    assert (said.status, said.outputs) == (1, {})
    assert "can't be asked" in said.log


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"GITHUB_API_URL": "http://api.example.org"}, "https is wanted"),
        ({"GITHUB_API_URL": ""}, "https is wanted"),
        ({"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is empty"),
        ({"GITHUB_TOKEN": f"{TOKEN}\n"}, "GITHUB_TOKEN has a space, a line end"),
    ],
)
def test_token_goes_nowhere_in_the_open(gate: Any, more: dict[str, str], word: str) -> None:
    said = gate(labelled(), **more)
    assert (said.status, said.outputs) == (1, {})
    assert word in said.log


@pytest.mark.parametrize("label", ["docs", "GPU-TESTS", "gpu-tests ", "x\n::set-env::y"])
def test_other_label_runs_nothing_and_asks_nothing(gate: Any, github: GitHub, label: str) -> None:
    said = gate(labelled(label))
    assert (said.status, said.outputs, github.asked) == (0, {"allowed": "false"}, [])
    assert said.log.count("\n") == 1


@pytest.mark.parametrize("action", ["synchronize", "opened", "unlabeled"])
def test_anything_but_a_label_runs_nothing(gate: Any, github: GitHub, action: str) -> None:
    said = gate({**pushed(), "action": action})
    assert (said.status, said.outputs, github.asked) == (0, {"allowed": "false"}, [])


@pytest.mark.parametrize("name", ["pull_request", "issue_comment", "workflow_run", "push", ""])
def test_event_that_was_not_thought_of_is_refused(gate: Any, name: str) -> None:
    assert gate(labelled(), name).status == 1


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch"])
def test_dispatch_and_schedule_run_their_own_commit(gate: Any, github: GitHub, name: str) -> None:
    said = gate(labelled(), name)
    assert said.status == 0
    assert (said.outputs["allowed"], said.outputs["sha"], said.outputs["number"]) == (
        "true",
        BASE,
        "",
    )
    assert github.asked == []


@pytest.mark.parametrize(
    "event",
    [
        "",
        "[]",
        labelled(sender=None),
        labelled(None),
        labelled(pull_request=None),
        labelled(pull_request={**pull(), "number": "7"}),
        labelled(pull_request={**pull(), "number": True}),
        labelled(pull_request=pull("main")),
        labelled(pull_request=pull(HEAD + "\nallowed=true")),
        labelled(pull_request=pull(HEAD.upper())),
    ],
)
def test_odd_event_is_refused(gate: Any, event: Any) -> None:
    said = gate(event)
    assert (said.status, said.outputs) == (1, {})
    assert said.log.startswith("::error::refused: ")
    assert said.log.count("\n") == 1


@pytest.mark.parametrize("sha", ["main", HEAD + "\nallowed=true", HEAD.upper(), HEAD[1:], "-x"])
def test_commit_has_the_form_of_one_whatever_github_says(
    gate: Any, github: GitHub, sha: str
) -> None:
    github.will(PULL, pull(sha))
    said = gate(labelled(pull_request=pull(sha)))
    assert (said.status, said.outputs) == (1, {})
    assert gate({}, "schedule", GITHUB_SHA=sha).status == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"GPU": "H100!"},
        {"GPU": "A100-80GB,H100"},
        {"GPU": "B200+"},
        {"MAX_COST": "10"},
        {"MARKERS": "gpu and not slow", "KEYWORDS": "loss or 'a b' or $(x)"},
    ],
)
def test_what_was_asked_for_is_handed_on(gate: Any, asked: dict[str, str]) -> None:
    said = gate({}, "workflow_dispatch", **asked)
    assert said.status == 0, said.log
    for name, value in asked.items():
        assert said.outputs[name.lower().replace("_", "-")] == value


@pytest.mark.parametrize(
    "asked",
    [
        {"GPU": ""},
        {"GPU": "T4 --remote-max-cost=1000"},
        {"GPU": "T4\nsha=" + LATER},
        {"GPU": "-x"},
        {"MAX_COST": ""},
        {"MAX_COST": "0"},
        {"MAX_COST": "0.000"},
        {"MAX_COST": "-1"},
        {"MAX_COST": "inf"},
        {"MAX_COST": "nan"},
        {"MAX_COST": "1e9"},
        {"MAX_COST": "1\n2"},
        {"MARKERS": "gpu\nsha=" + LATER},
        {"KEYWORDS": "a\x1bb"},
        {"KEYWORDS": "k" * 501},
    ],
)
def test_what_has_another_form_is_refused(gate: Any, asked: dict[str, str]) -> None:
    said = gate({}, "workflow_dispatch", **asked)
    assert (said.status, said.outputs) == (1, {})
    assert f"refused: {next(iter(asked))} is " in said.log


def test_push_takes_the_labels_away(gate: Any, github: GitHub) -> None:
    github.will(LABEL + "gpu-tests", [], method="DELETE")
    said = gate(pushed(), do="disarm")
    assert said.status == 0
    assert "labels taken off: gpu-tests" in said.log
    assert github.asked == [f"DELETE {LABEL}gpu-tests", f"DELETE {LABEL}modal-tests"]


def test_push_without_a_label_is_fine(gate: Any) -> None:
    said = gate(pushed(), do="disarm")
    assert said.status == 0
    assert "none was there" in said.log


def test_label_that_stays_is_an_error_and_the_other_one_goes(gate: Any, github: GitHub) -> None:
    github.will(LABEL + "gpu-tests", {}, 403, method="DELETE")
    github.will(LABEL + "modal-tests", [], method="DELETE")
    said = gate(pushed(), do="disarm")
    assert said.status == 1
    assert "issues/7/labels/gpu-tests: GitHub answered 403" in said.log
    assert f"DELETE {LABEL}modal-tests" in github.asked


def test_wrong_call_says_how() -> None:
    done = subprocess.run(
        [sys.executable, "-I", GATE, "both"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
