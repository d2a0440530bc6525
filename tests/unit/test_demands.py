"""What is declared and not there: which requirements hold, which are met, and what is said."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from packaging.markers import default_environment
from packaging.utils import canonicalize_name

from pytest_remotegpu.config import Settings
from pytest_remotegpu.demands import Demands, Found, absent, unmet
from pytest_remotegpu.lacking import There
from pytest_remotegpu.protocol.inventory import Has
from pytest_remotegpu.recipe import Here, declare
from pytest_remotegpu.recipe.declared import Source
from pytest_remotegpu.recipe.declaring import Part, stated
from pytest_remotegpu.unmet import Need, Unmet, with_parts
from pytest_remotegpu.worker.having import look

HERE = Here(f"{sys.version_info[0]}.{sys.version_info[1]}", "9.0.0")
LINUX = {"sys_platform": "linux", "python_version": "3.12", "platform_machine": "aarch64"}
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,3}([-_.]{1,2}[A-Za-z0-9]{1,3})?", fullmatch=True)
NAMES = st.lists(NAME, max_size=8)
WORDS = st.lists(st.sampled_from(["gpu", "test", "group:dev", "all"]), unique=True, max_size=3)
PATHS = st.sampled_from(["uv.lock", "pyproject.toml", "libs/a/uv.lock", "requirements.txt"])
MARKED = st.sampled_from(["", "; sys_platform == 'linux'", "; sys_platform == 'win32'"])
VERSIONS = st.sampled_from(["", ">=2", "==1.0", " ~= 3.1 "])


def names(found: Iterable[object]) -> list[str]:
    return [str(requirement) for requirement in found]


@given(st.lists(st.tuples(NAME, VERSIONS, MARKED), max_size=8), NAMES)
def test_what_is_not_there_is_missing_however_it_is_spelt(
    declared: list[tuple[str, str, str]], installed: list[str]
) -> None:
    found = Found(frozenset(map(canonicalize_name, installed)), environment=LINUX)
    missing = absent(["".join(parts) for parts in declared], found)
    wanted = {canonicalize_name(name) for name, _, marker in declared if "win32" not in marker}
    given_names = [canonicalize_name(requirement.name) for requirement in missing]
    assert set(given_names) == wanted - found.projects
    assert len(given_names) == len(set(given_names))


@given(NAMES, NAMES)
def test_nothing_is_missing_where_all_is_there(declared: list[str], more: list[str]) -> None:
    there = frozenset(map(canonicalize_name, [*declared, *more]))
    assert not absent(declared, Found(there, environment=LINUX))


@pytest.mark.parametrize(
    ("line", "is_missing"),
    [
        ("a; python_version < '3.12'", False),
        ("a; python_version >= '3.12'", True),
        ("a; platform_machine == 'x86_64'", False),
        ("a; extra == 'more'", False),
        ("a; extra == 'more' or sys_platform == 'linux'", True),
        ("a @ https://example.org/a.zip", True),
        ("-r other.txt", False),
        ("git+https://example.org/a", False),
        ("a --hash=sha256:00", True),
    ],
)
def test_markers_are_read_as_the_far_side_would(line: str, *, is_missing: bool) -> None:
    assert len(absent([line], Found(frozenset(), environment=LINUX))) == is_missing


def test_facts_that_make_no_sense_fit_no_marker() -> None:
    found = Found(frozenset(), environment={**LINUX, "python_version": "\x1b"})
    assert len(absent(["a; python_version >= '3.12'"], found)) <= 1


def test_what_can_be_imported_there_is_there_though_no_metadata_says_so() -> None:
    def brings(name: str) -> frozenset[str]:
        return frozenset({"cv2", "cv2_more"}) if name == "opencv-python" else frozenset()

    lines = ["opencv-python", "torch_geometric", "einops"]
    modules = frozenset({"cv2", "torch_geometric"})
    found = Found(frozenset(), modules, LINUX, brings)
    assert names(absent(lines, found)) == ["opencv-python", "einops"]
    found = Found(frozenset(), modules | {"cv2_more"}, LINUX, brings)
    assert names(absent(lines, found)) == ["einops"]


@pytest.mark.parametrize(
    ("projects", "line", "is_missing"),
    [
        ({"jax", "base"}, "jax[cuda]", True),
        ({"jax", "cuda-plugin"}, "jax[cuda]", False),
        ({"jax", "cuda-plugin"}, "jax[all]", True),
        ({"jax", "cuda-plugin", "deep"}, "jax[all]", False),
        ({"jax"}, "jax", False),
        ({"jax"}, "jax[circle]", False),
        ({"jax"}, "jax[unknown]", False),
    ],
)
def test_extras_are_there_where_what_they_ask_for_is(
    projects: set[str], line: str, *, is_missing: bool
) -> None:
    needs = [
        "base",
        "cuda-plugin; extra == 'cuda'",
        "windows; extra == 'cuda' and sys_platform == 'win32'",
        "jax[cuda]; extra == 'all'",
        "jax[nested]; extra == 'all'",
        "deep; extra == 'nested'",
        "jax[circle]; extra == 'circle'",
        "not a requirement !",
    ]
    found = Found(
        frozenset(projects),
        environment=LINUX,
        requires=lambda name: needs if name == "jax" else [],
    )
    assert len(absent([line], found)) == is_missing


def test_other_parts_are_named_where_they_would_bring_what_was_lacking() -> None:
    parts = [
        Part("requirements.txt", ("a", "b"), taken=True),
        Part("pyproject.toml[all]", ("c", "d", "e")),
        Part("pyproject.toml[some]", ("c", "f @ https://example.org/f.zip")),
        Part("pyproject.toml[docs]", ("g",)),
        Part("pyproject.toml[brings]", ("h>=2", "i"), frozenset({"i"})),
    ]
    found = Found(
        frozenset({"b"}),
        environment=LINUX,
        brings=lambda name: frozenset({"from_h"}) if name == "h" else frozenset(),
    )
    own = [Need("requirements.txt", "a", "a")]
    some = [Need("pyproject.toml[some]", "c", "c"), Need("pyproject.toml[some]", "f", "")]
    brings = [Need("pyproject.toml[brings]", "h", "h>=2"), Need("pyproject.toml[brings]", "i", "")]
    assert unmet(parts, found, ["unknown"]) == own
    assert unmet(parts, found, ["a"]) == own
    assert unmet(parts, found, ["c", "a"]) == own + some
    assert unmet(parts, found, ["from_h", "c"]) == own + some + brings


# a session


def session(tmp_path: Path, text: str = "first-of-nobody\n") -> Demands:
    """Have a project with a requirements file."""
    (tmp_path / "requirements.txt").write_text(text, encoding="utf-8")
    return Demands(tmp_path, settings())


def settings() -> Settings:
    no_options = dict.fromkeys(("requirements", "image", "secrets", "volumes"), ())
    return cast("Settings", SimpleNamespace(**no_options))


def test_it_is_said_once_and_only_after_a_failure_that_it_may_explain(tmp_path: Path) -> None:
    demands = session(tmp_path)
    there = There("/usr/bin/python")
    demands.take(Has(["pytest"], [], {}))
    assert demands.say(there) == []
    demands.lack(["anything"])
    found = demands.unmet(there)
    assert found is not None
    assert demands.unmet(there) == found
    assert demands.say(there) == [found.words()]
    assert "/usr/bin/python -m pip install first-of-nobody" in found.words()
    assert demands.unmet(there) is None
    assert demands.say(there) == []


def test_nothing_is_said_before_the_far_side_has_spoken(tmp_path: Path) -> None:
    demands = session(tmp_path)
    demands.lack(["first_of_nobody"])
    assert demands.unmet(There()) is None


def test_a_far_side_without_what_runs_there_is_not_believed(tmp_path: Path) -> None:
    demands = session(tmp_path)
    demands.lack(["first_of_nobody"])
    demands.take(Has([], [], {}))
    assert demands.unmet(There()) is None
    demands.take(Has([], ["pytest"], {}))  # as in an archive, which has no metadata
    assert demands.unmet(There()) is not None


@given(st.lists(st.text(max_size=9)), st.dictionaries(st.sampled_from(sorted(LINUX)), st.text()))
def test_whatever_a_far_side_says_only_names_from_here_are_shown(
    tmp_path_factory: pytest.TempPathFactory, told: list[str], environment: dict[str, str]
) -> None:
    text = "first-of-nobody\nother-of-nobody; python_version < '4' and sys_platform > 'a'\n"
    demands = session(tmp_path_factory.mktemp("project"), text)
    demands.lack(["first_of_nobody"])
    demands.take(Has([*told, "pytest"], told, environment))
    found = demands.unmet(There())
    assert found is not None
    assert {need.name for need in found.needs} <= {"first-of-nobody", "other-of-nobody"}


@pytest.mark.parametrize("text", ["", "-r nowhere.txt\n", "first-of-nobody ===\n", "\x00\n"])
@pytest.mark.parametrize("project", ["dependency-groups.test = 'x'", "x = " + "[" * 100_000])
def test_files_that_declare_nothing_that_can_be_meant_are_passed_over(
    tmp_path: Path, text: str, project: str
) -> None:
    demands = session(tmp_path, text)
    (tmp_path / "pyproject.toml").write_text(project)
    demands.lack(["first_of_nobody"])
    demands.take(Has(["pytest"], [], {}))
    assert demands.unmet(There()) is None


# what is declared, and where


def test_each_extra_group_and_file_is_a_part(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("no matter what", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(
        """
        [project]
        name = "Mine"
        dependencies = ["torch", "member", "mine[late]"]
        [project.optional-dependencies]
        test = ["pytest", "hypothesis"]
        late = ["late"]
        all = ["mine[test]", "torch"]
        [dependency-groups]
        dev = ["ruff", {include-group = "types"}]
        types = ["mypy"]
        [tool.uv.sources]
        torch = {index = "cuda"}
        member = {path = "libs/member"}
        """,
        encoding="utf-8",
    )
    (tmp_path / "libs" / "member").mkdir(parents=True)
    member = "[project]\nname = 'member'\ndependencies = ['einops']\n"
    (tmp_path / "libs" / "member" / "pyproject.toml").write_text(member, encoding="utf-8")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "docs.txt").write_text("sphinx\n", encoding="utf-8")
    (tmp_path / "dev-requirements.txt").write_text("-r nowhere.txt\n", encoding="utf-8")
    said = stated(tmp_path, declare([], [], [], []), HERE)
    assert said.lines == ("uv.lock[test]",)
    assert [(part.where, part.lines, part.taken) for part in said.parts] == [
        ("pyproject.toml", ("torch", "einops", "late"), True),
        ("pyproject.toml[test]", ("pytest", "hypothesis"), True),
        ("pyproject.toml[late]", (), False),
        ("pyproject.toml[all]", ("pytest", "hypothesis"), False),
        ("pyproject.toml[group:dev]", ("ruff", "mypy"), False),
        ("pyproject.toml[group:types]", ("mypy",), False),
        ("dev-requirements.txt", (), False),
        ("requirements/docs.txt", ("sphinx",), False),
    ]
    assert said.parts[0].elsewhere == {"torch", "member"}


def test_the_lines_of_the_ini_file_say_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'a'\ndependencies = ['b']\n")
    (tmp_path / "requirements.txt").write_text("c\n", encoding="utf-8")
    lines = ["requirements.txt", "pip: d>=1 e", "nowhere/pyproject.toml[x]"]
    said = stated(tmp_path, declare(lines, [], [], []), HERE)
    assert said.lines == ("requirements.txt", "pip: d>=1", "pip: e", "nowhere/pyproject.toml[x]")
    assert [(part.where, part.taken) for part in said.parts] == [
        ("requirements.txt", True),
        ("remotegpu_requirements", True),
        ("pyproject.toml", False),
    ]
    said = stated(tmp_path, declare([], ["docker/Dockerfile"], [], []), HERE)
    assert said.lines == ()
    assert not any(part.taken for part in said.parts)


# in words


def test_the_command_names_what_an_index_has() -> None:
    needs = (
        Need("requirements.txt", "numpy", "numpy>=2"),
        Need("requirements.txt", "scipy", "scipy"),
        Need("pyproject.toml[ml]", "numpy", "numpy>=2"),
        Need("pyproject.toml[ml]", "own", ""),
    )
    assert Unmet(needs, "/opt/a b/python").words() == (
        "declared but not installed there: numpy, scipy (requirements.txt), own "
        "(pyproject.toml[ml]); on the far side: '/opt/a b/python' -m pip install 'numpy>=2' scipy, "
        "and install own from where pyproject.toml[ml] has it"
    )
    assert Unmet(needs[-1:]).words().endswith("; on the far side: install own from where "
        "pyproject.toml[ml] has it")  # fmt: skip
    assert "PYTHON -m pip install scipy" in Unmet(needs[1:2]).words()


def test_where_an_environment_is_made_the_lines_are_given_that_would_have_it() -> None:
    needs = (Need("pyproject.toml[group:dev]", "a", "a"), Need("more.txt", "b", "b"))
    words = Unmet(needs, made=True, lines=("uv.lock[gpu]", "pip: c")).words()
    way = "set remotegpu_requirements to the lines 'uv.lock[gpu, group:dev]', 'pip: c', 'more.txt'"
    assert words.endswith(f"; {way}")
    words = Unmet(needs[:1], made=True).words()
    assert words.endswith("; set remotegpu_requirements to the line 'pyproject.toml[group:dev]'")
    needs = (Need("remotegpu_requirements", "c", "c"), Need("pyproject.toml[gpu]", "d", "d"))
    words = Unmet(needs, made=True, lines=("uv.lock[gpu]", "pip: c")).words()
    assert "; remotegpu_requirements asks for that already" in words


def test_not_all_are_shown_of_very_many_and_the_command_has_them() -> None:
    needs = tuple(Need("requirements.txt", f"n{number}", f"n{number}") for number in range(45))
    words = Unmet(needs).words()
    assert "n39 (requirements.txt) and 5 more; " in words
    assert words.endswith(" n43 n44")


def test_what_several_processes_found_is_one() -> None:
    one, two, three = (Need("requirements.txt", name, name) for name in "abc")
    ours, theirs = Unmet((one, two), "/p", lines=("x.txt",)), Unmet((two, three), "/p")
    assert (ours | theirs) == Unmet((one, two, three), "/p", lines=("x.txt",))
    assert Unmet.from_plain(to_builtins(ours)) == ours


@given(st.lists(st.tuples(PATHS, WORDS), max_size=4), st.lists(st.tuples(PATHS, WORDS), max_size=4))
def test_lines_with_more_parts_can_be_read_and_have_all_of_them(
    before: list[tuple[str, list[str]]], more: list[tuple[str, list[str]]]
) -> None:
    lines = [written(path, words) for path, words in before]
    parts = [written(path, [word]) for path, words in more for word in words or [""]]
    given_lines = with_parts(lines, parts)
    sources = declare(given_lines, [], [], []).sources or ()
    for source in declare_each([*lines, *parts]):
        [same] = [each for each in sources if stem(each.path) == stem(source.path)]
        assert {*source.extras, *source.groups} <= {*same.extras, *same.groups}
    assert with_parts(given_lines, parts) == given_lines


def written(path: str, words: list[str]) -> str:
    words = [] if path.endswith(".txt") else [word for word in words if word]
    return f"{path}[{', '.join(words)}]" if words else path


def declare_each(lines: list[str]) -> list[Source]:
    return [source for line in lines for source in declare([line], [], [], []).sources or ()]


def stem(path: str) -> str:
    return path.replace("uv.lock", "pyproject.toml")


# there


def test_what_there_is_is_found_without_reading_any_metadata() -> None:
    found = look(sys.path)
    names = set(map(canonicalize_name, found.projects))
    known = {
        canonicalize_name(dist.metadata["Name"]) for dist in importlib.metadata.distributions()
    }
    assert known <= names
    assert {"pytest", "hypothesis", "json"} <= set(found.modules)
    ours = default_environment()
    assert {key: str(ours[key]) for key in found.environment} == found.environment  # type: ignore[literal-required]
    assert found.environment.keys() == ours.keys()


@pytest.mark.parametrize(
    "name",
    ["a_b-1.0.dist-info", "a_b.egg-info", "a_b-1.0-py3.11.egg-info", "a-b.egg-link"],
)
def test_each_kind_of_metadata_names_a_project(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "caf\xe9-1.dist-info").touch()
    (tmp_path / f"{'x' * 201}-1.dist-info").touch()
    [project] = look([str(tmp_path), str(tmp_path / "nowhere")]).projects
    assert canonicalize_name(project) == "a-b"
