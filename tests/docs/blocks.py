"""The code blocks of a Markdown page, and what it means to run one.

Directives are HTML comments right above a block:

* ``<!-- file: NAME -->`` writes the block into the page's folder under that name;
* ``<!-- with: PATH -->`` copies that part of the repository into the folder first;
* ``<!-- cards: N -->`` lets the host have that many cards while the block runs;
* ``<!-- exit: N -->`` says with which status the commands of the block end, 0 unless said;
* ``<!-- tested in: PATH -->`` leaves it to that test file, which must name the page;
* ``<!-- not run: REASON -->`` leaves it alone, and a test lists all of these;
* ``<!-- command: NAME -->`` marks a command that ``.ci/run`` runs to the letter.

Knows Sybil and the repository's files; knows nothing of the package.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from docs import standins

__all__ = ["PAGES", "ROOT", "Block", "differs", "open_page", "read"]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_FOLDER: Final = "/home/you/project"
"""What a page shows in place of the temporary folder that its blocks run in."""
SECONDS: Final = 100
"""Time for one command."""

DIRECTIVES: Final = ("file", "with", "cards", "exit", "tested in", "not run", "command")
_COMMENTS: Final = re.compile(r"(?:<!--[^>]*-->\s*)+\Z")
_COMMENT: Final = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_DURATION: Final = re.compile(r"\d+\.\d+ ?s\b")
_RULE: Final = re.compile(r"([=_!>\- ])\1{2,}")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    :ivar line: where it stands in its page. :ivar directives: the comments above it, by name.
    """

    page: Path
    line: int
    language: str
    text: str
    directives: dict[str, str]

    @property
    def reason(self) -> str | None:
        """Why it is not run here; ``None`` where it is."""
        if "command" in self.directives:
            return f".ci/run runs it as {self.directives['command']!r}"
        return self.directives.get("not run")


def _directives(text: str, where: str) -> dict[str, str]:
    """Read the comments at the end of ``text``."""
    found = _COMMENTS.search(text)
    said: dict[str, str] = {}
    for comment in _COMMENT.findall(found[0]) if found else ():
        name, colon, value = comment.partition(":")
        if colon and name in DIRECTIVES and value.strip():
            said[name] = value.strip()
        elif colon:
            raise ValueError(f"{where}: {comment!r} is no directive; these are: {DIRECTIVES}")
    return said


def _parse(document: Document) -> Iterator[Region]:
    for region in FencedCodeBlockLexer(r"[^\n]*")(document):
        where = f"{document.path}, {document.line_column(region.start)}"
        said = _directives(document.text[: region.start], where)
        language, text = region.lexemes["language"].strip(), region.lexemes["source"]
        line = document.text.count("\n", 0, region.start) + 1
        region.parsed = Block(Path(document.path), line, language, text, said)
        region.evaluator = _evaluate
        yield region


def read(page: Path) -> list[Block]:
    """Give the blocks of a page, in order."""
    return [example.parsed for example in _examples(page)]


def open_page(page: Path, folder: Path) -> list[Example]:
    """Give the blocks of a page as examples that run in ``folder``; they share it."""
    examples = _examples(page)
    for example in examples:
        example.namespace["folder"] = folder
    return examples


def _examples(page: Path) -> list[Example]:
    return list(Sybil(parsers=[_parse], pattern="*.md").parse(page))


# running


def _evaluate(example: Example) -> str | None:
    """Run one block; give a text where it is not what the page says."""
    block: Block = example.parsed
    folder: Path = example.namespace["folder"]
    project = folder / "project"
    project.mkdir(exist_ok=True)
    if block.reason is not None:
        return None
    if "tested in" in block.directives:
        return _check_mention(block, ROOT / block.directives["tested in"])
    if "with" in block.directives:
        _copy(ROOT / block.directives["with"], project / block.directives["with"])
    if "file" in block.directives:
        target = project / block.directives["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
    if block.language in ("console", "bash"):
        cards = int(block.directives.get("cards", "0"))
        return _run_commands(block, project, standins.variables(folder, sys.executable, cards))
    return _check(block)


def _check_mention(block: Block, test: Path) -> str | None:
    if test.is_file() and block.page.name in test.read_text(encoding="utf-8"):
        return None
    return f"{test} is no test that names {block.page.name!r}"


def _copy(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def _check(block: Block) -> str | None:
    """Check a block that is no command; what can't be checked must be plain text."""
    if block.language == "python":
        compile(block.text, f"{block.page.name}:{block.line}", "exec")
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "ini":
        configparser.ConfigParser().read_string(block.text)
    elif block.language not in ("text", "mermaid"):
        return f"nobody here knows how to run {block.language!r}; say <!-- not run: REASON -->"
    if block.language == "python" and "file" not in block.directives:
        return "a Python block needs <!-- file: NAME -->, so that a command can run it"
    return None


def _run_commands(block: Block, project: Path, variables: dict[str, str]) -> str | None:
    status = int(block.directives.get("exit", "0"))
    for command, shown in _commands(block):
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607  as the reader's shell would
            cwd=project,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        output = done.stdout.decode().replace(str(project), SHOWN_FOLDER)
        if done.returncode != status:
            return f"$ {command}\nended with {done.returncode}, not {status}:\n{output}"
        if shown and (text := differs(shown, output)):
            return f"$ {command}\n{text}"
    return None


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """Cut a block into commands and the output that is shown below each."""
    if block.language == "bash":
        yield block.text, ""
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


# comparing


def _plain(text: str) -> str:
    """Leave out what differs from run to run: durations, and the length of rules around a text."""
    lines = (_RULE.sub(r"\1\1\1", _DURATION.sub("0.00s", line)) for line in text.splitlines())
    return "".join(f"{line.rstrip()}\n" for line in lines).strip("\n") + "\n"


def differs(shown: str, output: str) -> str:
    """Compare what a page shows with what came; ``...`` stands for anything, alone for any lines.

    :return: nothing where they agree, else both.
    """
    pattern = ""
    for line in _plain(shown).splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r"[^\n]*?".join(re.escape(part) for part in line.split("...")) + r"\n"
    if re.fullmatch(pattern, _plain(output)):
        return ""
    return f"--- the page shows\n{_plain(shown)}--- it came\n{_plain(output)}"
