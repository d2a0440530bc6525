"""What the project's files ask for: requirements, pyproject, lock file, Dockerfile."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe.images import Dockerfile, has_python, python_of
from pytest_remotegpu.recipe.lock import Lock
from pytest_remotegpu.recipe.pyproject import Pyproject, to_toml
from pytest_remotegpu.recipe.requirements import Reader
from pytest_remotegpu.recipe.values import Files

Read = Callable[[dict[str, str]], Files]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write files, of which ``requirements.txt`` is read; what ``.`` needs is ``own[EXTRAS]``."""

    def reading(files: dict[str, str]) -> Files:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text.encode())
        reader = Reader(
            tmp_path,
            lambda folder, extras: [f"of-{folder.name}" + "-".join(["", *sorted(extras)])],
        )
        reader.read("requirements.txt")
        return reader.result()

    return reading


def test_includes_are_put_in_place(read: Read) -> None:
    found = read(
        {
            "requirements.txt": "-r reqs/base.txt\ntorch==2.11.0\n-c limits.txt\n",
            "reqs/base.txt": "--requirement=more.txt\nnumpy\n",
            "reqs/more.txt": "einops # used everywhere\n-r ../requirements.txt\n",
            "limits.txt": "numpy<3\n-r deeper.txt\n",
            "deeper.txt": "scipy<2",
        }
    )
    assert found.lines == ("einops", "numpy", "torch==2.11.0")
    assert found.constraints == ("numpy<3", "scipy<2")
    assert found.sources == (
        "requirements.txt",
        "reqs/base.txt",
        "reqs/more.txt",
        "limits.txt",
        "deeper.txt",
    )


def test_options_hashes_markers_and_addresses_are_kept(read: Read) -> None:
    lines = [
        "--index-url https://example.org/simple",
        "--extra-index-url https://${WHO}:${INDEX_TOKEN}@example.org/simple",
        "-f https://example.org/wheels",
        "torch==2.11.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb",
        'triton>=3; sys_platform == "linux"',
        "flash-attn @ https://example.org/flash_attn-2.8.whl",
        "-e git+https://example.org/repo@v1#egg=repo&subdirectory=python",
        "--require-hashes",
        "--trusted-host example.org",
    ]
    found = read({"requirements.txt": "\ufeff" + "\r\n".join(lines)})
    assert found.lines == (
        "--index-url https://example.org/simple",
        "--extra-index-url https://${WHO}:${INDEX_TOKEN}@example.org/simple",
        "-f https://example.org/wheels",
        "torch==2.11.0 --hash=sha256:aa --hash=sha256:bb",
        'triton>=3; sys_platform == "linux"',
        "flash-attn @ https://example.org/flash_attn-2.8.whl",
        "repo @ git+https://example.org/repo@v1#subdirectory=python",
    )
    assert found.variables == ("INDEX_TOKEN", "WHO")


def test_code_of_the_project_stands_for_what_it_needs(read: Read) -> None:
    text = "-e .\n./libs/one[gpu, test]\n--editable=../sibling\nfile:./libs/two\n"
    found = read({"requirements.txt": text})
    assert found.lines[1:3] == ("of-one-gpu-test", "of-sibling")
    assert not any("-e" in line or "./" in line for line in found.lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-r gone.txt", ["requirements.txt, line 1", "'gone.txt'", "no such file"]),
        ("a\n-r https://u:pw@example.org/r.txt?key=pw", ["line 2", "address", "a copy"]),
        ("what is this", ["line 1", "'what is this' is no requirement", "NAME"]),
        ("x @ @ https://u:pw@example.org/r.whl?key=pw", ["is no requirement"]),
        ("numpy==", ["line 1", "'numpy==' is no requirement; one reads NAME, NAME==VERSION or"]),
        ("./wheels/x-1.whl", ["./wheels/x-1.whl", "this machine"]),
        ("-f wheels", ["--find-links wheels", "an address"]),
        ("--no-such-option", ["--no-such-option", "leave it out"]),
        ("-e git+https://u:pw@example.org/repo", ["lacks its name", "#egg=NAME"]),
    ],
)
def test_a_line_that_can_not_be_meant_is_refused(read: Read, text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read({"requirements.txt": text})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("größe".encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.txt is no text in UTF-8"):
        read({"requirements.txt": "-r latin.txt"})


# pyproject

PROJECT = """
[project]
name = "My.Pkg"
dependencies = ["numpy", "my-pkg[core]"]
[project.optional-dependencies]
core = ["einops"]
GPU = ["torch", "my_pkg[Core]"]
all = ["my-pkg[gpu,core]"]
cpu = ["torch-cpu"]
[dependency-groups]
test = ["pytest", {include-group = "Lint_it"}]
lint-it = ["ruff"]
circle = [{include-group = "circle"}]
odd = [{path = "x"}]
own = ["my-pkg[cpu]"]
[tool.uv]
conflicts = [[{extra = "gpu"}, {extra = "cpu"}]]
"""


def project(text: str = PROJECT) -> Pyproject:
    return Pyproject.parse("pyproject.toml", text)


@pytest.mark.parametrize(
    ("extras", "groups", "found"),
    [
        ((), (), {"numpy", "einops"}),
        (("gpu",), (), {"numpy", "einops", "torch"}),
        (("all",), (), {"numpy", "einops", "torch"}),
        ((), ("test",), {"numpy", "einops", "pytest", "ruff"}),
        ((), ("own",), {"numpy", "einops", "torch-cpu"}),
    ],
)
def test_extras_and_groups_are_followed(
    extras: tuple[str, ...], groups: tuple[str, ...], found: set[str]
) -> None:
    assert set(project().requirements(extras, groups)) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('project.dependencies = "numpy"', "project.dependencies is 'numpy', and must be a list"),
        ("project.dependencies = ['numpy', 3]", "project.dependencies has 3, which is no text"),
        ("project.dependencies = {numpy = '1'}", "project.dependencies is {'numpy': '1'}"),
        ("project.optional-dependencies.gpu = 'numpy'", 'such as gpu = ["numpy"]'),
        ("project.optional-dependencies.gpu = [3]", "project.optional-dependencies.gpu has 3"),
        ("project.optional-dependencies = ['numpy']", "must be a table, [project.optional"),
        ("dependency-groups.test = 'pytest'", "dependency-groups.test is 'pytest'"),
        ("dependency-groups.test = [3]", "group 'test' has 3; an entry is a requirement"),
        ("project = 'x'", "project is 'x', and must be a table, [project]"),
        ("tool.uv.conflicts = 'x'", "tool.uv.conflicts is 'x'"),
    ],
)
def test_what_has_another_type_is_refused(text: str, words: str) -> None:
    """Nothing is taken letter by letter, and nothing silently left out."""
    read = Pyproject.parse("pyproject.toml", text)

    def needs() -> list[str]:
        return read.requirements(*read.usual())

    with pytest.raises(UsageError) as caught:
        needs()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("extras", "groups", "words"),
    [
        (("tpu",), (), "no extra 'tpu'; it has: all, core, cpu, gpu"),
        ((), ("tests",), "no group 'tests'; it has: circle, lint-it, odd, own, test"),
        ((), ("circle",), "'circle' includes itself; end the circle"),
        (
            (),
            ("odd",),
            "group 'odd' has {'path': 'x'}; an entry is a requirement, or",
        ),
    ],
)
def test_what_is_not_there_is_refused(
    extras: tuple[str, ...], groups: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        project().requirements(extras, groups)
    assert words in str(caught.value)


def test_usual_extras_and_groups_are_taken_unless_they_conflict() -> None:
    assert project().usual() == ((), ("test",))
    assert project(PROJECT.partition("[tool.uv]")[0]).usual() == (("gpu",), ("test",))


def test_uv_gets_nothing_of_the_file_that_it_does_not_need() -> None:
    text = PROJECT + (
        'package = true\n[tool.uv.workspace]\nmembers = ["x"]\n[tool.ruff]\nline-length = 9\n'
        '[build-system]\nrequires = ["hatchling"]\n'
    )
    kept = tomllib.loads(project(text).for_uv())
    assert kept.keys() == {"project", "dependency-groups", "tool"}
    assert kept["project"] == tomllib.loads(PROJECT)["project"] | {"version": "0"}
    assert kept["dependency-groups"] == tomllib.loads(PROJECT)["dependency-groups"]
    assert kept["tool"] == {
        "uv": {"conflicts": [[{"extra": "gpu"}, {"extra": "cpu"}]], "package": False}
    }
    assert project(text.replace("= 9", "= 10")).for_uv() == project(text).for_uv()


BARE = PROJECT.partition("[tool.uv]")[0]
BUILDS = """
no-build-isolation-package = ["flash-attn"]
no-build-isolation = false
no-binary = false
no-binary-package = ["flash-attn"]
no-build = false
no-build-package = ["torch"]
no-sources = false
no-index = false
index-url = "https://example.org/simple"
extra-index-url = ["https://example.org/more"]
index-strategy = "unsafe-best-match"
find-links = ["https://example.org/wheels"]
build-constraint-dependencies = ["setuptools<80"]
dependency-metadata = [{ name = "flash-attn", version = "2.8.3", requires-dist = ["torch"] }]

[X.extra-build-dependencies]
flash-attn = [{ requirement = "torch", match-runtime = true }, "ninja"]

[X.extra-build-variables]
flash-attn = { FLASH_ATTENTION_SKIP_CUDA_BUILD = "TRUE" }

[X.config-settings]
editable_mode = "compat"

[X.config-settings-package]
flash-attn = { jobs = "4" }
"""


def test_how_uv_is_told_to_build_is_kept() -> None:
    text = f"{BARE}\n[tool.uv]\ncache-dir = 'c'{BUILDS.replace('[X.', '[tool.uv.')}"
    kept = tomllib.loads(project(text).for_uv())["tool"]["uv"]
    said = tomllib.loads(BUILDS)
    assert kept == {key: value for key, value in (said | said["X"]).items() if key != "X"} | {
        "package": False
    }
    slower = project(text.replace('jobs = "4"', 'jobs = "2"'))
    assert slower.for_uv() != project(text).for_uv()


def test_a_uv_toml_stands_in_for_what_it_may_say() -> None:
    text = f"""{BARE}
        [tool.uv]
        no-binary-package = ["numpy"]
        sources = {{ torch = {{ index = "cu" }} }}
        index = [{{ name = "old", url = "https://example.org/old" }}]
    """
    beside = tomllib.loads('index = [{ name = "cu", url = "https://example.org/cu" }]')
    kept = tomllib.loads(project(text).for_uv(beside))["tool"]["uv"]
    assert kept["index"] == beside["index"]
    assert kept["sources"] == {"torch": {"index": "cu"}}
    assert "no-binary-package" not in kept


def test_folders_of_wheels_of_this_machine_are_left_out() -> None:
    text = f"{BARE}\n[tool.uv]\nfind-links = ['wheels', 'https://example.org/w', '/w']\n"
    kept = tomllib.loads(project(text).for_uv())["tool"]["uv"]
    assert kept["find-links"] == ["https://example.org/w"]


plain = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), plain, max_size=3))
def test_toml_is_read_back_as_it_was(data: dict[str, Any]) -> None:
    try:
        str(data).encode()
    except UnicodeEncodeError:
        return
    assert tomllib.loads(to_toml(data)) == {key: value for key, value in data.items() if value}


# lock file

LOCK = """
version = 1
revision = 3
requires-python = ">=3.11"
[[package]]
name = "mine"
version = "1"
source = { editable = "." }
[[package]]
name = "torch"
version = "2.10.0"
source = { registry = "https://registry.example/simple" }
resolution-markers = ["sys_platform == 'darwin'"]
[[package]]
name = "torch"
version = "2.11.0"
source = { registry = "https://example.org/cu130" }
resolution-markers = ["sys_platform == 'linux'"]
[[package]]
name = "both"
version = "1"
source = { registry = "https://registry.example/simple" }
[[package]]
name = "both"
version = "2"
source = { registry = "https://registry.example/simple" }
[[package]]
name = "repo"
version = "3"
source = { git = "https://example.org/repo?rev=1#abc" }
[[package]]
name = "lib"
source = { virtual = "libs/lib" }
"""


def test_a_lock_file_pins_what_linux_gets() -> None:
    lock = Lock.parse("uv.lock", LOCK, "3.12")
    assert dict(lock.pins) == {"mine": "1", "torch": "2.11.0", "repo": "3"}
    assert lock.local == ("lib", "mine")
    assert lock.requires_python == ">=3.11"
    assert lock.git
    assert not Lock.parse("uv.lock", LOCK.replace("git =", "url ="), "3.12").git


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<<<<<<< HEAD", "no TOML"),
        ("version = 2", "format 2, and this version knows 1"),
        ("", "format None"),
    ],
)
def test_a_lock_file_of_another_kind_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Lock.parse("sub/uv.lock", text, "3.12")
    assert "sub/uv.lock" in str(caught.value)
    assert "run uv" in str(caught.value) or "uv export" in str(caught.value)


# images


@pytest.mark.parametrize(
    ("reference", "brings", "python"),
    [
        ("python:3.12-slim", True, "3.12"),
        ("docker.io/library/python:3.13.1-bookworm", True, "3.13"),
        ("python", True, ""),
        ("python:3", True, ""),
        ("localhost:5000/python:3.12", None, ""),
        ("nvidia/cuda:12.8.0-devel-ubuntu22.04", False, ""),
        ("nvcr.io/nvidia/cuda:12.8.0-devel-ubuntu22.04", False, ""),
        ("ubuntu:24.04", False, ""),
        ("pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel", True, ""),
        ("nvcr.io/nvidia/pytorch:25.01-py3", True, ""),
        ("ghcr.io/team/base:1", None, ""),
    ],
)
def test_an_image_tells_its_python_by_its_name(
    reference: str, brings: bool | None, python: str
) -> None:
    assert has_python(reference) is brings
    assert python_of(reference) == python


DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG VERSION=3.12
FROM --platform=linux/amd64 python:${VERSION}-slim AS base
FROM golang:1 AS tool
COPY --from=base /x /y
FROM base
ENV A=1
COPY --chown=1:1 a.txt \\
    # between
    b/ /opt/
COPY ["with space.txt", "/opt/"]
ADD https://example.org/x.tar /opt/
COPY <<EOF /opt/here
COPY no.txt /opt
EOF
RUN <<EOF
FROM nothing
EOF
RUN apt-get install -y \\
    libnuma1
"""


def test_a_dockerfile_is_read() -> None:
    found = Dockerfile.parse("Dockerfile", DOCKERFILE)
    assert found.base == "python:3.12-slim"
    assert found.copies == ((8, "a.txt"), (8, "b/"), (11, "with space.txt"))
    assert found.has_python
    assert not found.installs


@pytest.mark.parametrize(
    ("text", "brings"),
    [
        ("FROM ubuntu:24.04\nRUN apt-get install -y libnuma1", False),
        ("FROM ubuntu:24.04\nRUN apt-get install -y python3.12 && pip install torch", True),
        ("FROM nvidia/cuda:12.8.0-base-ubuntu22.04", False),
        ("FROM ghcr.io/team/base:1", True),
    ],
)
def test_only_a_bare_dockerfile_lacks_python(text: str, brings: bool) -> None:
    assert Dockerfile.parse("Dockerfile", text).has_python is brings


def test_a_dockerfile_without_a_base_is_refused() -> None:
    with pytest.raises(UsageError, match=r"x/Dockerfile has no FROM.*begin it with FROM IMAGE"):
        Dockerfile.parse("x/Dockerfile", "RUN true\n")


@given(st.text())
def test_any_text_is_a_dockerfile_or_none(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert Dockerfile.parse("Dockerfile", text).base
