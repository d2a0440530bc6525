"""Run the code blocks of each page, in order, in a folder of its own; list those that can't run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import blocks
from warmth import warmth

NOT_RUN = [
    ("README.md", ".ci/run runs it as 'quickstart'"),
    ("README.md", ".ci/run runs it as 'tests'"),
    ("ci.md", "a workflow of GitHub, which needs a runner and a GPU host"),
    ("ide.md", "a file of VS Code"),
    ("recipes.md", "conda is not on PyPI; tests/surroundings has a prefix as it makes one"),
]


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    """Give the pages an agent of their own, to which the cards of their hosts are known."""
    with warmth() as made:
        yield str(made.runtime)


@pytest.mark.timeout(300)  # a page may start a dozen sessions
@pytest.mark.skipif(
    sys.platform == "win32", reason="local:cpu and the commands need a POSIX system"
)
@pytest.mark.parametrize("page", blocks.PAGES, ids=lambda page: page.name)
def test_blocks_do_what_the_page_says(
    page: Path, tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", home)
    for example in blocks.open_page(page, tmp_path.resolve()):
        example.evaluate()


def test_no_other_block_is_left_out() -> None:
    left_out = [
        (page.name, block.reason)
        for page in blocks.PAGES
        for block in blocks.read(page)
        if block.reason is not None
    ]
    assert left_out == NOT_RUN


@pytest.mark.parametrize(
    ("shown", "output", "agree"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("...\nc\n", "a\nb\n", False),
        ("x ... z\n", "x y z\n", True),
        ("x ... z\n", "x y\nz\n", False),
        ("== 1 passed in 0.01s ==\n", "=== 1 passed in 12.34s ===\n", False),
        ("=== 1 passed in 0.01s ===\n", "===== 1 passed in 12.34s =====\n", True),
        ("=== 1 passed in 0.01s ===\n", "===== 2 passed in 12.34s =====\n", False),
        ("1 test   0.01 s   x\n", "1 test   0.99 s   x\n", True),
    ],
)
def test_comparison_sees_differences(shown: str, output: str, *, agree: bool) -> None:
    assert (blocks.differs(shown, output) == "") is agree


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```console\n$ echo a\nb\n```\n", "the page shows"),
        ("```console\n$ false\n```\n", "ended with 1, not 0"),
        ("<!-- exit: 3 -->\n```console\n$ true\n```\n", "ended with 0, not 3"),
        ("```bash\nfalse\n```\n", "ended with 1"),
        ("```yaml\na: b\n```\n", "nobody here knows"),
        ("```python\nprint()\n```\n", "needs <!-- file"),
        ("<!-- tested in: tests/docs/blocks.py -->\n```python\n```\n", "no test that names"),
        ("<!-- tested in: tests/nothing.py -->\n```python\n```\n", "no test that names"),
    ],
)
def test_a_wrong_block_is_noticed(text: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    (example,) = blocks.open_page(page, tmp_path)
    with pytest.raises(AssertionError, match=complaint):
        example.evaluate()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<!-- fiel: a.py -->\n```python\n```\n", ValueError),
        ("<!-- file: a.py -->\n```python\nif\n```\n", SyntaxError),
        ("```toml\na = \n```\n", ValueError),
    ],
)
def test_a_broken_block_is_noticed(text: str, error: type[Exception], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        blocks.open_page(page, tmp_path)[0].evaluate()
