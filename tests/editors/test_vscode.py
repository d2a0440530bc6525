"""What VS Code is told, by a stand-in for its reporter: the tree, and one outcome for each test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from session.running import CPU, PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a named pipe as Unix has it")

FAR = (CPU, "-o", "remotegpu_collect=far")
HERE = (CPU, "-o", "remotegpu_collect=here")
WAYS = {"collected here": HERE, "collected there": FAR}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
EDITORS = Path(__file__).parent
PROJECT = """
    import pytest


    class TestOuter:
        @pytest.mark.gpu
        def test_method(self):
            pass

        class TestInner:
            @pytest.mark.gpu
            @pytest.mark.parametrize("value", [1, 2])
            def test_value(self, value):
                assert value == 1


    @pytest.mark.gpu
    @pytest.mark.parametrize("name", ["a.b", "x-y", "sp ace[]"])
    def test_name(name):
        pass


    @pytest.mark.gpu
    @pytest.mark.skip(reason="not today")
    def test_skipped():
        pass


    def test_here():
        pass
"""


class Editor:
    """Starts sessions as VS Code does, and reads what they say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipe = folder / "pipe"
        self._ids = folder / "ids"
        os.mkfifo(self._pipe)
        self.output = ""
        self.status = -1

    def discover(self, *args: str) -> dict[str, Any]:
        """Give the tree of tests."""
        command = ["-m", "pytest", "-p", "vscode_pytest", "--collect-only", *args]
        (message,) = self._talk([*command, f"--rootdir={self._folder}"])
        assert message["status"] == "success", message
        tests: dict[str, Any] = message["tests"]
        return tests

    def run(self, ids: list[str], *args: str) -> list[tuple[str, str]]:
        """Run tests by their ids; give ids and outcomes in the order in which they came."""
        messages = self.messages(ids, *args)
        assert all(message["status"] == "success" for message in messages), messages
        results = [each for message in messages for each in message["result"].values()]
        return [(each["test"], each["outcome"]) for each in results]

    def messages(self, ids: list[str], *args: str) -> list[dict[str, Any]]:
        """Run tests by their ids; give all that was said."""
        self._ids.write_text("\n".join(ids), encoding="utf-8")
        return self._talk([str(EDITORS / "run_vscode.py"), f"--rootdir={self._folder}", *args])

    def _talk(self, command: list[str]) -> list[dict[str, Any]]:
        read: list[bytes] = []
        # open for both, so that nobody waits where a session ends before it connects
        keeper = os.open(self._pipe, os.O_RDWR)
        reader = threading.Thread(target=lambda: read.append(self._pipe.read_bytes()))
        reader.start()
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=self._folder,
                env=os.environ
                | {"PYTHONPATH": str(EDITORS)}
                | {"TEST_RUN_PIPE": str(self._pipe), "RUN_TEST_IDS_PIPE": str(self._ids)},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            with self._pipe.open("wb"):  # the reader may not have begun yet
                os.close(keeper)
            reader.join()
        self.output, self.status = done.stdout + done.stderr, done.returncode
        assert "INTERNALERROR" not in self.output
        return unpack(read[0])


def unpack(data: bytes) -> list[dict[str, Any]]:
    """Read all messages of a stream; what is left over is an error."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        fields = dict(line.split(b": ") for line in head.split(b"\r\n"))
        length = int(fields[b"content-length"])
        found.append(json.loads(data[:length])["params"])
        data = data[length:]
    return found


@pytest.fixture
def editor(pytester: pytest.Pytester) -> Editor:
    """Give an editor that has the test's folder open."""
    return Editor(pytester.path)


def ids_of(tree: dict[str, Any]) -> list[str]:
    """List the ids of all tests in a tree, in order."""
    if tree["type_"] == "test":
        return [tree["runID"]]
    return [id for child in tree["children"] for id in ids_of(child)]


def without_lines_of_classes(tree: dict[str, Any]) -> dict[str, Any]:
    """Give a tree whose classes have no line: it is the object that VS Code asks for theirs."""
    changed = dict(tree)
    if tree["type_"] == "class":
        changed["lineno"] = ""
    if "children" in tree:
        changed["children"] = [without_lines_of_classes(child) for child in tree["children"]]
    return changed


def outline(tree: dict[str, Any]) -> Any:
    """Reduce a tree to kinds and names."""
    children = [outline(child) for child in tree["children"]]
    head = f"{tree['type_']} {tree['name']} {tree.get('lineno', '')}".strip()
    return {head: children} if children else head


@ways
def test_discovery(editor: Editor, pytester: pytest.Pytester, way: tuple[str, ...]) -> None:
    pytester.makepyfile(**{"sub/test_all": PROJECT})
    far, plain = editor.discover(*way), editor.discover()
    assert far == (plain if way == HERE else without_lines_of_classes(plain))
    (folder,) = outline(plain).values()
    assert folder == [
        {
            "folder sub": [
                {
                    "file test_all.py": [
                        {
                            "class TestOuter 4": [
                                "test test_method 5",
                                {
                                    "class TestInner 9": [
                                        {"function test_value": ["test [1] 10", "test [2] 10"]}
                                    ]
                                },
                            ]
                        },
                        {
                            "function test_name": [
                                "test [a.b] 16",
                                "test [x-y] 16",
                                "test [sp ace[]] 16",
                            ]
                        },
                        "test test_skipped 22",
                        "test test_here 28",
                    ]
                }
            ]
        }
    ]


@pytest.mark.parametrize("where", ["argument", "environment", "ini"])
def test_run_all_by_ids(
    editor: Editor, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    pytester.makepyfile(test_all=PROJECT)
    ids = ids_of(editor.discover())
    if where == "ini":
        pytester.makeini("[pytest]\nremotegpu = local:cpu\n")
    elif where == "environment":
        monkeypatch.setenv("PYTEST_REMOTEGPU", "local:cpu")
    told = editor.run(ids, *([CPU] if where == "argument" else []))
    assert "remote: 8 tests" not in editor.output
    assert "7 tests on 1 GPU, 1 here" in editor.output
    assert sorted(id for id, _ in told) == sorted(ids)
    assert dict(told) == {
        id: "failure" if "[2]" in id else "skipped" if id.endswith("_skipped") else "success"
        for id in ids
    }
    shipped = [id for id, _ in told if not id.endswith("test_here")]
    assert shipped == [id for id in ids if id in shipped]


@ways
def test_run_some_by_ids(editor: Editor, pytester: pytest.Pytester, way: tuple[str, ...]) -> None:
    path = pytester.makepyfile(test_all=PROJECT)
    ids = [f"{path}::TestOuter::TestInner::test_value[2]", f"{path}::test_name[x-y]"]
    told = editor.messages(ids, *way)
    results = [each for message in told for each in message["result"].values()]
    assert [each["test"] for each in results] == ids
    assert [each["outcome"] for each in results] == ["failure", "success"]
    assert "assert 2 == 1" in results[0]["message"]
    assert editor.status == 1


@ways
def test_a_condition_of_this_side_skips_nothing(
    editor: Editor, pytester: pytest.Pytester, way: tuple[str, ...]
) -> None:
    path = pytester.makepyfile("""
        import os
        import pytest

        HERE = "REMOTEGPU_WORKER" not in os.environ

        @pytest.mark.gpu
        @pytest.mark.skipif(HERE, reason="not on this host")
        def test_alone(): pass

        @pytest.mark.skipif(HERE, reason="not on this host")
        class TestAll:
            @pytest.mark.gpu
            def test_method(self): pass

        @pytest.mark.gpu
        @pytest.mark.skipif(not HERE, reason="only on this host")
        def test_only_here(): pass

        @pytest.mark.skipif(HERE, reason="not on this host")
        def test_local(): pass
    """)
    names = ["test_alone", "TestAll::test_method", "test_only_here", "test_local"]
    told = dict(editor.run([f"{path}::{name}" for name in names], *way))
    assert [told[f"{path}::{name}"] for name in names] == ["success"] * 2 + ["skipped"] * 2


@ways
def test_losses_have_one_outcome_each(
    editor: Editor, pytester: pytest.Pytester, way: tuple[str, ...]
) -> None:
    path = pytester.makepyfile("""
        import os
        import pytest

        @pytest.fixture
        def broken():
            raise ValueError("before")

        @pytest.fixture
        def breaks():
            yield
            raise ValueError("after")

        @pytest.mark.gpu
        def test_crash(): os.abort()

        @pytest.mark.gpu
        def test_next(): pass

        @pytest.mark.gpu
        def test_setup(broken): pass

        @pytest.mark.gpu
        def test_teardown(breaks): pass

        @pytest.mark.gpu
        @pytest.mark.xfail
        def test_xfails(): assert False
    """)
    names = ["test_crash", "test_next", "test_setup", "test_teardown", "test_xfails"]
    ids = [f"{path}::{name}" for name in names]
    assert editor.run(ids, *way) == list(
        zip(ids, ["failure", "success", "error", "success", "skipped"], strict=True)
    )


def test_workers_of_xdist(editor: Editor, pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_all=PROJECT)
    ids = [f"{path}::test_name[{name}]" for name in ("a.b", "x-y", "sp ace[]")]
    ids.append(f"{path}::test_here")
    plain, far = editor.run(ids, "-n", "2"), editor.run(ids, "-n", "2", CPU)
    # each process has its reporter, and the one that runs no test knows no files
    assert sorted(id for id, _ in far) == sorted(id for id, _ in plain)
    assert [dict(far)[id] for id in ids] == ["success"] * 4


@ways
def test_refusals_reach_the_editor(
    editor: Editor, pytester: pytest.Pytester, way: tuple[str, ...]
) -> None:
    path = pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu(colour="red")
        def test_it(): pass
    """)
    (message,) = editor.messages([f"{path}::test_it"], *way)
    assert message["status"] == "error"
    assert editor.status == 4
    assert "colour" in editor.output


UNIMPORTABLE = """
    import os

    import pytest

    if "REMOTEGPU_WORKER" not in os.environ:
        raise ImportError("this interpreter has no torch")


    @pytest.mark.gpu
    class TestKernels:
        @pytest.mark.parametrize("size", [1, 2])
        def test_size(self, size):
            assert size == 1

        def test_other(self):
            pass


    @pytest.mark.gpu
    @pytest.mark.skip(reason="not today")
    def test_skipped():
        pass
"""


def test_a_file_that_cannot_be_imported_here_is_in_the_tree_and_runs(
    editor: Editor, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nremotegpu = local:cpu\nremotegpu_collect = far\n")
    pytester.makepyfile(test_far=UNIMPORTABLE, test_near="def test_here(): pass")
    tree = editor.discover()
    (folder,) = outline(tree).values()
    assert folder == [
        {
            "file test_far.py": [
                {
                    "class TestKernels": [
                        {"function test_size": ["test [1] 11", "test [2] 11"]},
                        "test test_other 15",
                    ]
                },
                "test test_skipped 19",
            ]
        },
        {"file test_near.py": ["test test_here 1"]},
    ]
    ids = ids_of(tree)
    told = editor.run(ids)
    assert [outcome for _, outcome in sorted(told, key=lambda each: ids.index(each[0]))] == [
        *("success", "failure", "success", "skipped", "success")
    ]
    assert len(told) == len(ids)
