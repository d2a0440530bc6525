"""Names and links of the pages: all that is named exists, all that exists is explained.

The code blocks are run by ``tests/docs``. Knows the pages, and of the package its lists of names.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_remotegpu
from pytest_remotegpu import gpu, hookspecs

ROOT = Path(__file__).parent.parent
HOUSE = Path(pytest_remotegpu.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONS = ROOT / "docs" / "options.md"

OPTION = re.compile(r"--(?:remote|gpu)[\w-]*")
NAME = re.compile(r"\b(?:pytest_)?remotegpu_[a-z_]+|\b(?:PYTEST_)?REMOTEGPU\w*")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```", re.MULTILINE | re.DOTALL)


def said(*arguments: str) -> str:
    """Return what pytest prints for these arguments in an empty project with this plugin only."""
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=/", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Ask pytest itself for the options, ini options and fixtures that the plugin brings along."""
    empty = str(tmp_path_factory.mktemp("empty"))
    helped = said("--help", empty)
    group = helped.partition("GPU tests on another machine:")[2].partition("\n\n")[0]
    fixtures = said("--fixtures", "-q", empty)
    parts = fixtures.split("fixtures defined from ")
    ours = "".join(part for part in parts if part.startswith("pytest_remotegpu."))
    return {
        "options": set(re.findall(r"^  (--[\w-]+)", group, re.MULTILINE)),
        "ini": set(re.findall(r"^  (remotegpu\w*) \(", helped, re.MULTILINE)),
        "fixtures": set(re.findall(r"^(\w+)(?: \[| --)", ours, re.MULTILINE)),
    }


def constants() -> set[str]:
    """Collect every text in the package's code, in which each name of the wire and junit stands."""
    found: set[str] = set()
    for path in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def variables() -> set[str]:
    """Name the environment variables that the package reads or sets."""
    return {
        text for text in constants() if re.fullmatch(r"(PYTEST_)?REMOTEGPU(_[A-Z_]*[A-Z])?", text)
    }


def hooks() -> set[str]:
    """Name the hooks that others may implement."""
    return {name for name in vars(hookspecs) if name.startswith("pytest_")}


def first_cells(page: Path, heading: str) -> set[str]:
    """Collect the names in the first column of the table below a heading."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {re.split(r"[=(]", name)[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_each_option_is_explained(registered: dict[str, set[str]]) -> None:
    assert len(registered["options"]) > 5
    assert first_cells(OPTIONS, "Command line") == registered["options"]


def test_each_ini_option_is_explained(registered: dict[str, set[str]]) -> None:
    assert len(registered["ini"]) > 5
    assert first_cells(OPTIONS, "Ini file") == registered["ini"]


def test_each_fixture_is_explained(registered: dict[str, set[str]]) -> None:
    assert len(registered["fixtures"]) > 3
    assert first_cells(OPTIONS, "Fixtures") == registered["fixtures"]


def test_each_variable_is_explained() -> None:
    assert "PYTEST_REMOTEGPU" in variables()
    assert first_cells(OPTIONS, "Environment") == variables()


def test_each_hook_is_explained_with_its_arguments() -> None:
    shown = dict(re.findall(r"`(pytest_remotegpu_\w+)\(([^)]*)\)`", OPTIONS.read_text("utf-8")))
    assert shown.keys() == hooks()
    for name, arguments in shown.items():
        code = getattr(hookspecs, name).__code__
        assert arguments.split(", ") == list(code.co_varnames[: code.co_argcount])


def test_each_command_is_explained() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    commands = set(re.findall(r"^    (\w+) ", shown.stdout, re.MULTILINE))
    assert {"ps", "doctor"} <= commands
    page = (ROOT / "docs" / "command.md").read_text("utf-8")
    assert set(re.findall(r"^## remotegpu (\w+)$", page, re.MULTILINE)) == commands
    table = (ROOT / "README.md").read_text("utf-8").partition("\n| command | ")[2].split("\n")[0]
    assert {f"remotegpu {name}" for name in commands} == set(re.findall(r"`([^`]+)`", table))


def test_each_argument_of_the_mark_is_explained() -> None:
    text = (ROOT / "docs" / "markers.md").read_text("utf-8").partition("\n## Arguments\n")[2]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    known = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert known == set(gpu.ARGUMENTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_what_is_not_there(page: Path, registered: dict[str, set[str]]) -> None:
    properties = {text for text in constants() if re.fullmatch(r"remotegpu_[a-z_]+", text)}
    known = registered["options"] | registered["ini"] | hooks() | variables() | properties
    known |= {"pytest_remotegpu", "remotegpu_", "--gpu-count"}  # the last: of remotegpu run
    text = page.read_text(encoding="utf-8")
    used = {name.rstrip("-") for name in OPTION.findall(text)} | set(NAME.findall(text))
    assert used - known == set()


def test_readme_lists_each_name(registered: dict[str, set[str]]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    table = text.partition("\n## Names in this version\n")[2].partition("\n## ")[0]
    names = (
        registered["options"] | registered["ini"] | registered["fixtures"] | hooks() | variables()
    )
    assert {name for name in names if f"`{name}" not in table} == set()


def test_picture_of_the_house_shows_the_floors_that_imports_keep_to() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("\n## How it is built\n")[2]
    house = text.partition("\nfloor 6 ")[2].partition("\nfloor 0 ")
    lines = [*house[0].splitlines(), house[2].partition("\n")[0]]
    cells = [re.split(r"\s{2,}", re.sub(r"^floor \d", "", line).strip())[0] for line in lines]
    drawn = [layer.split(" | ") for cell in cells for layer in cell.split(" > ")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (floors,) = (contract["layers"] for contract in contracts if contract["id"] == "floors")
    built = [[room for room in layer.split(" | ") if "(" not in room] for layer in floors]
    assert drawn == [layer for layer in built if layer]


# links


def anchors(page: Path) -> set[str]:
    """Name the headings of a page as GitHub does."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links() -> Iterator[tuple[Path, str]]:
    """Find the links of the project's Markdown files, those to the web left out."""
    pages = [*PAGES, *ROOT.glob("*.md"), *(ROOT / "changelog.d").glob("*.md")]
    for page in dict.fromkeys(pages):
        for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target):
                yield page, target


@pytest.mark.parametrize(
    ("page", "target"), list(links()), ids=lambda part: str(getattr(part, "name", part))
)
def test_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    place = (page.parent / path).resolve() if path else page
    assert place.exists()
    assert place.is_relative_to(ROOT)
    assert not anchor or anchor in anchors(place)


def test_links_were_found() -> None:
    assert len(list(links())) > 20


def test_index_leads_to_each_page() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in text} == set()
