"""What else goes on while somebody sits at a prompt: other workers, this process, other phases."""

from __future__ import annotations

from pathlib import Path

import pytest

from .project import CPU, seated, write
from .seat import PROMPT

TWO = """
    import pytest

    pytestmark = pytest.mark.gpu

    def test_first():
        name = "first"
        breakpoint()

    def test_second():
        name = "second"
        breakpoint()
"""


def test_prompts_take_turns(project: Path) -> None:
    """Of two workers: the second waits until the first has gone on, and no key goes astray."""
    write(project, TWO)
    with seated(project, CPU, "--remote-workers=2") as seat:
        seat.expect(PROMPT)
        first = seat.ask("p name")
        assert seat.ask("import time; time.sleep(1)") == ""
        assert seat.text.count("remote: debugging") == 1
        seat.type("c\r")
        seat.expect("PDB continue")
        seat.expect(PROMPT)
        assert {first, seat.ask("p name")} == {"'first'", "'second'"}
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


OTHERS = """
    import pathlib
    import time
    import pytest

    @pytest.mark.gpu
    def test_stops():
        breakpoint()

    @pytest.mark.gpu(2)
    def test_beside():
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        pathlib.Path("beside").touch()

    def test_here():
        pathlib.Path("here").touch()

    def test_here_too():
        pathlib.Path("here-too").touch()
"""


def test_other_workers_go_on_and_are_shown_later(project: Path) -> None:
    """Two shapes, two workers; nothing but the debugger writes to the terminal meanwhile."""
    write(project, OTHERS)
    with seated(project, f"{CPU}:3", "-v") as seat:
        seat.expect(PROMPT)
        (project / "go").touch()
        seat.settle((project / "beside").exists)
        assert "test_beside PASSED" not in seat.text
        seat.type("c\r")
        seat.expect("PDB continue")
        seat.expect("test_beside PASSED")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "4 passed"


def test_no_test_begins_here(project: Path) -> None:
    """While somebody debugs; the one that runs ends first."""
    write(
        project,
        """
        import pathlib
        import time
        import pytest

        @pytest.mark.gpu
        def test_stops():
            pathlib.Path("stops").touch()
            breakpoint()

        def test_here():
            while not pathlib.Path("stops").exists():
                time.sleep(0.01)
            time.sleep(0.5)

        def test_here_too():
            pathlib.Path("here-too").touch()
        """,
    )
    with seated(project, CPU, "-v") as seat:
        seat.expect("test_here PASSED")
        seat.expect(PROMPT)
        seat.ask("import time; time.sleep(0.5)")
        assert not (project / "here-too").exists()
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "3 passed"


def test_while_files_are_collected_there(project: Path) -> None:
    """A breakpoint at the top of a file stops its import."""
    write(
        project,
        """
        import pytest

        SIZES = [1, 2]
        breakpoint()

        @pytest.mark.gpu
        @pytest.mark.parametrize("size", SIZES)
        def test_size(size):
            pass
        """,
    )
    with seated(project, CPU) as seat:
        seat.expect(PROMPT)
        assert seat.ask("SIZES.append(3)") == ""
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "3 passed"


def test_in_the_tear_down_at_the_end(project: Path) -> None:
    """Nobody is given up for sitting there for long, while all else is over."""
    write(
        project,
        """
        import pytest

        @pytest.fixture(scope="session")
        def model():
            yield
            breakpoint()

        @pytest.mark.gpu
        def test_model(model):
            pass
        """,
    )
    with seated(project, CPU, "--remote-timeout=1") as seat:
        seat.expect(PROMPT)
        assert seat.ask("import time; time.sleep(2)") == ""
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "1 passed"


def test_the_streams_are_as_they_were(project: Path) -> None:
    """For the tests after it: no input, and what is written is captured."""
    write(
        project,
        """
        import os
        import sys
        import pytest

        pytestmark = pytest.mark.gpu

        def test_stops():
            breakpoint()

        def test_after():
            os.system("echo from a child")
            assert not any(os.isatty(fd) for fd in (0, 1, 2))
            assert not sys.__stdout__.line_buffering
            assert os.read(0, 1) == b""
        """,
    )
    for capture in ("fd", "sys"):
        with seated(project, CPU, "-rA", f"--capture={capture}") as seat:
            seat.expect(PROMPT)
            seat.type("c\r")
            assert seat.end() == pytest.ExitCode.OK, seat.text
        assert seat.last_line == "2 passed"
        assert seat.text.count("from a child") == (capture == "fd")
