"""What a far side lacks, in words."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_remotegpu.advice import way_out
from pytest_remotegpu.lacking import There, in_words, packages, requirement_for, why_not_here


def installed(module: str) -> str | None:
    return {"cv2": "opencv-python==4.10", "einops": "einops==0.8"}.get(module)


def test_only_packages_count() -> None:
    named = ["einops", "torch.nowhere", "_tkinter", "mine", "einops"]
    assert packages(named, lambda name: name == "mine") == ["einops"]


def test_where_an_environment_is_made_the_setting_is_named() -> None:
    lacks, way = in_words(["cv2", "einops"], There("/usr/bin/python", made=True), installed)
    assert lacks == "host lacks: cv2, einops (/usr/bin/python)"
    assert "'pip: opencv-python==4.10 einops==0.8' to remotegpu_requirements" in way


def test_a_package_that_nobody_knows_gets_no_name() -> None:
    _, way = in_words(["strange"], There("/opt/my env/bin/python"), installed)
    assert way.startswith("on the far side: '/opt/my env/bin/python' -m pip install PACKAGE (")
    assert "install strange" not in way


@pytest.mark.parametrize("python", ["", "/bin/\x1b[2Jpython", "/bin/python\nfine", "x" * 401])
def test_what_a_far_side_calls_its_interpreter_is_shown_if_it_may_be_a_path(python: str) -> None:
    lacks, way = in_words(["einops"], There(python), installed)
    assert lacks == "host lacks: einops (its interpreter is not known)"
    assert way == "on the far side: PYTHON -m pip install einops==0.8"


def test_nothing_is_said_of_nothing() -> None:
    assert in_words([], There(), installed) == []
    assert in_words(["einops"], There(same=True), installed) == []


def test_what_is_installed_here_is_found_by_its_module() -> None:
    assert requirement_for("pytest") == f"pytest=={pytest.__version__}"
    assert requirement_for("of_nobody_at_all") is None


@pytest.mark.parametrize(
    ("reason", "python"),
    [
        ("/opt/v/bin/python3.12: No module named pytest_remotegpu", "/opt/v/bin/python3.12"),
        ("ended (exit status 1): /a/python: No module named 'msgspec'", "/a/python"),
        ("ModuleNotFoundError: No module named 'cloudpickle'", "PYTHON"),
    ],
)
def test_the_command_for_a_far_side_without_this_package_is_whole(reason: str, python: str) -> None:
    refusal = way_out(reason, "1.2")
    assert refusal is not None
    way = f"on the far side: {python} -m pip install pytest-remotegpu==1.2"
    assert refusal.text == f"{reason}\n{way}"


ERRORS = [
    (ModuleNotFoundError("No module named 'flash'", name="flash"), True),
    (ModuleNotFoundError("No module named 'mine.fast'", name="mine.fast"), False),
    (ModuleNotFoundError("No module named 'pytest.fast'", name="pytest.fast"), False),
    (ModuleNotFoundError("No module named 'shared.fast'", name="shared.fast"), True),
    (ImportError("cannot import name 'x' from 'pytest'", name="pytest"), False),
    (ImportError("libcudart.so: cannot open shared object file", name="flash_cuda"), True),
    (ImportError("needs a card"), True),
    (ValueError("needs a card"), False),
]


@pytest.mark.parametrize(("error", "explained"), ERRORS, ids=[str(each[0]) for each in ERRORS])
def test_which_imports_another_machine_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, explained: bool
) -> None:
    """Not what is the project's, nor what is missing from a package that is here."""
    (tmp_path / "mine.py").touch()
    monkeypatch.setitem(sys.modules, "shared", ModuleType("shared"))  # as a namespace, without file
    outer = RuntimeError("outer")
    outer.__cause__ = error
    for each in (error, outer):
        assert why_not_here(each, [str(tmp_path)]) == (str(error) if explained else "")


def test_causes_may_go_round() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert why_not_here(first, []) == ""


def test_errors_with_odd_attributes_and_texts_are_explained_by_their_class() -> None:
    class OddError(ImportError):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert why_not_here(OddError(), []) == "OddError"
    assert why_not_here(ImportError("five", name=5), []) == "five"  # type: ignore[arg-type]
    assert why_not_here(ImportError(), []) == "ImportError"
