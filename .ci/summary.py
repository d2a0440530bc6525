"""Write a run of GPU tests as a summary for the job's page, and fail where nothing was run.

Green must mean that tests ran on a GPU. So run data that are missing, empty, unfinished or of a
form that is not known fail the job, and so does a run in which no test ran on the far side. It
reads the file of `--remote-json`, version 1, and knows nothing of the package. All texts in there
come from tests and far machines: none becomes markup, nor a command of the runner.

Usage: python .ci/summary.py FILE [TITLE]

Appends to the file GITHUB_STEP_SUMMARY, where there is one, and prints annotations; paths in them
are below GITHUB_WORKSPACE. Exit status: 0 for a good run, 1 for any other, 2 for a wrong call.
"""

import html
import io
import json
import os
import string
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

FORMAT = ("pytest-remotegpu/run", 1)
BAD = ("failed", "error")
SHOWN, LONGEST = 50, 2000
"""Of failures, and of the signs of each: a page holds a mebibyte."""
ANNOTATED = 10
"""GitHub shows no more of a step."""
_MARKUP = str.maketrans({sign: f"&#{ord(sign)};" for sign in string.punctuation})


class NotARunError(Exception):
    """The run data can't be used; the text says why."""


def read(path: Path) -> dict[str, Any]:
    """Read the run data of *path*.

    :raises NotARunError: where they are missing or of another form.
    """
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = f"there are no run data, pytest did not come so far ({error})"
        raise NotARunError(why) from error
    except ValueError as error:
        raise NotARunError(f"the run data are no JSON ({error})") from error
    if not isinstance(run, dict):
        raise NotARunError("the run data are no object")
    if (said := (run.get("format"), run.get("version"))) != FORMAT:
        raise NotARunError(f"the run data are of the form {said!r}; {FORMAT!r} is known")
    tests = run.get("tests")
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise NotARunError("the run data have no list of tests")
    return run


def part(run: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Give an object of the run; an empty one where there is none."""
    value = run.get(key)
    return value if isinstance(value, dict) else {}


def rows(run: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Give the objects of a list of the run."""
    value = run.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def find_faults(run: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each reason why this run shows nothing, or nothing good."""
    tests, session, backend = rows(run, "tests"), part(run, "session"), part(run, "backend")
    far = [test for test in tests if test.get("where") == "far"]
    ran = [test for test in far if test.get("outcome") not in ("skipped", "not run")]
    bad = [test for test in tests if test.get("outcome") in BAD]
    left = [test for test in tests if test.get("outcome") == "not run"]
    faults = []
    if not tests:
        faults.append("no test was selected")
    elif not backend:
        faults.append("the run had no far side")
    elif not far:
        faults.append("no test ran on the far side")
    elif not ran:
        faults.append("each test on the far side was skipped")
    elif backend.get("gpu_used") is not True:
        faults.append("no GPU was used")
    if session.get("complete") is not True:
        faults.append("the run was cut off")
    elif session.get("exit_status") != 0:
        faults.append(f"pytest ended with exit status {session.get('exit_status')!r}")
    if bad:
        faults.append(f"{count(len(bad), 'test')} failed or could not be run")
    if left:
        faults.append(f"{count(len(left), 'test')} did not run")
    return faults


def count(number: int, word: str) -> str:
    """Say how many there are.

    >>> count(1, "test"), count(2, "test")
    ('1 test', '2 tests')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


def plain(value: object) -> str:
    """Write a text or a number so that nothing of it is markup, on one line.

    >>> plain("<b>|x")
    '&#60;b&#62;&#124;x'
    """
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, float):
        value = f"{value:.2f}"
    return " ".join(str(value).split()).translate(_MARKUP)


def money(value: object) -> str:
    """Write an amount in USD; nothing where there is none."""
    return f"${value:.2f}" if isinstance(value, int | float) else ""


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> Iterator[str]:
    """Write a table of cells that are plain already."""
    for line in (head, ("---",) * len(head), *lines):
        yield f"| {' | '.join(line)} |"
    yield ""


def page(run: Mapping[str, Any], faults: list[str], title: str) -> str:
    """Write the summary."""
    lines = [f"## {plain(title)}", ""]
    lines += [f"- **{plain(fault)}**" for fault in faults]
    lines += [""] if faults else []
    outcomes = part(run, "outcomes")
    if outcomes:
        names = sorted(outcomes)
        cells = [tuple(plain(outcomes[name]) for name in names)]
        lines += table(tuple(plain(name) for name in names), cells)
    if shapes := rows(run, "shapes"):
        lines += table(SHAPE, [shape(each) for each in shapes])
    lines += closing(run)
    lines += failures(run)
    return "\n".join(lines) + "\n"


SHAPE = ("shape", "workers", "tests", "seconds of tests", "GPU-seconds", "cost")


def shape(each: Mapping[str, Any]) -> tuple[str, ...]:
    """Write the cells of a shape."""
    keys = ("shape", "workers", "tests", "seconds", "gpu_seconds")
    return (*(plain(each.get(key)) for key in keys), money(each.get("cost_usd")))


def closing(run: Mapping[str, Any]) -> Iterator[str]:
    """Write where it ran, with what, and what it cost."""
    session, backend, cost = part(run, "session"), part(run, "backend"), part(run, "cost")
    cards = backend.get("cards")
    told = [backend.get("name"), *(cards if isinstance(cards, list) else [])]
    for name, key in (("Python", "python"), ("pytest", "pytest"), ("plugin", "package")):
        told += [f"{name} {session[key]}"] if session.get(key) else []
    yield plain(", ".join(str(each) for each in told if each))
    yield ""
    if total := money(cost.get("total")):
        most = money(cost.get("at_most"))
        yield f"Cost: about {total}{f' of at most {most}' if most else ''}"
        yield ""
    causes = run.get("causes")
    for cause in causes[:SHOWN] if isinstance(causes, list) else []:
        yield f"- {plain(str(cause)[:LONGEST])}"
    yield ""


def failures(run: Mapping[str, Any]) -> Iterator[str]:
    """Write the tests that failed, with their messages, as text that stays text."""
    bad = [test for test in rows(run, "tests") if test.get("outcome") in BAD]
    for test in bad[:SHOWN]:
        said = f"{test.get('outcome')}: {test.get('id')}\n{test.get('message') or ''}"[:LONGEST]
        # A blank line ends such a block for some readers of Markdown.
        lines = [html.escape(line) for line in said.splitlines() if line.strip()]
        yield f"<pre>{chr(10).join(lines)}</pre>"
        yield ""
    if len(bad) > SHOWN:
        yield f"and {len(bad) - SHOWN} more"
        yield ""


def annotate(run: Mapping[str, Any], workspace: str) -> Iterator[str]:
    """Give the runner's commands that mark files with what failed in them."""
    bad = [test for test in rows(run, "tests") if test.get("outcome") in BAD]
    root = part(run, "session").get("root")
    for test in bad[:ANNOTATED]:
        name = str(test.get("id"))
        file = PurePath(str(root or ""), name.partition("::")[0])
        place = ""
        if workspace and file.is_relative_to(workspace):
            place = f"file={escape(file.relative_to(workspace).as_posix(), value=True)},"
        message = str(test.get("message") or test.get("outcome"))
        yield f"::error {place}title={escape(name, value=True)}::{escape(message)}"


def escape(text: str, *, value: bool = False) -> str:
    r"""Write a text so that it is data to the runner.

    :param value: whether it is that of a property.

    >>> escape("50 %\n::x::"), escape("a,b", value=True)
    ('50 %25%0A::x::', 'a%2Cb')
    """
    signs = "%\r\n:," if value else "%\r\n"
    return text.translate({ord(sign): f"%{ord(sign):02X}" for sign in signs})


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Write the summary, say what is wrong, and return the exit status."""
    match argv:
        case [name]:
            title = "GPU tests"
        case [name, title]:
            pass
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    try:
        run = read(Path(name))
        faults = find_faults(run)
    except NotARunError as error:
        run, faults = {}, [str(error)]
    if target := environ.get("GITHUB_STEP_SUMMARY"):
        text = page(run, faults, title).encode(errors="backslashreplace")
        with Path(target).open("ab") as file:
            file.write(text)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in annotate(run, environ.get("GITHUB_WORKSPACE", "")):
        print(line)
    for fault in faults:
        print(f"::error::{escape(fault)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
