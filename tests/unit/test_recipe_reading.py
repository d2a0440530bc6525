"""A recipe as a whole: what of a project's files counts, its name, and why it is another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import (
    Here,
    Recipe,
    Volume,
    declare,
    fingerprint,
    read,
    to_plain,
    why,
)

HERE = Here("3.12", "9.2.0", "0.1", ("msgspec>=0.20", "pytest>=8.4", 'x; extra == "modal"'))
MODAL = {"modal": "1.6.4"}
Write = Callable[..., Path]

LOCK = """
version = 1
requires-python = ">=3.11"
[[package]]
name = "mine"
source = { editable = "." }
[[package]]
name = "torch"
version = "2.10.0"
source = { registry = "https://registry.example/simple" }
"""
PYPROJECT = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["torch"]\n'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the files of a project."""

    def writing(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".").replace("_dash_", "-")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return writing


def recipe_of(root: Path, here: Here = HERE, /, **lines: list[str]) -> Recipe:
    names = ("requirements", "image", "secrets", "volumes")
    return read(root, declare(**{name: lines.get(name, []) for name in names}), here)


# which files count


def test_a_lock_file_comes_first(write: Write) -> None:
    root = write(
        uv_dot_lock=LOCK,
        pyproject_dot_toml=PYPROJECT + "[dependency-groups]\ntest = []\ndocs = []\n",
        requirements_dot_txt="numpy",
    )
    recipe = recipe_of(root)
    assert recipe.uv is not None
    assert recipe.uv.groups == ("test",)
    assert recipe.uv.local == ("mine",)
    assert recipe.uv.lock == LOCK
    assert recipe.files.lines == ()


def test_settings_of_uv_beside_the_lock_file_count(write: Write) -> None:
    files = {"uv_dot_lock": LOCK, "pyproject_dot_toml": PYPROJECT}
    plain = recipe_of(write(**files))
    told = recipe_of(write(**files, uv_dot_toml='no-build-isolation-package = ["flash-attn"]\n'))
    assert plain.uv is not None
    assert told.uv is not None
    assert "flash-attn" in told.uv.pyproject
    assert fingerprint(told, {}) != fingerprint(plain, {})


def test_requirements_files_come_second(write: Write) -> None:
    root = write(
        requirements_dot_txt="numpy",
        requirements_dash_gpu_dot_txt="torch",
        requirements__test_dot_txt="hypothesis",
        requirements_dash_docs_dot_txt="sphinx",
        pyproject_dot_toml=PYPROJECT,
    )
    recipe = recipe_of(root)
    assert recipe.uv is None
    assert recipe.files.lines == ("numpy", "torch", "hypothesis")


def test_pyproject_comes_third(write: Write) -> None:
    extras = "[project.optional-dependencies]\ngpu = ['triton']\ndocs = ['sphinx']\n"
    recipe = recipe_of(write(pyproject_dot_toml=PYPROJECT + extras))
    assert recipe.files.lines == ("torch", "triton")
    assert recipe.files.sources == ("pyproject.toml",)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no uv.lock, requirements.txt"),
        ({"pyproject_dot_toml": "[tool.ruff]\n"}, "no uv.lock, requirements.txt"),
        ({"pyproject_dot_toml": "[tool.poetry.dependencies]\npython = '3'\n"}, "poetry export"),
    ],
)
def test_a_project_that_says_nothing_is_told_so(
    write: Write, files: dict[str, str], words: str
) -> None:
    recipe = recipe_of(write(**files))
    assert recipe.files.lines == ()
    assert words in recipe.notes[0]
    assert recipe.own == ("msgspec>=0.20", "pytest==9.2.0")


def test_what_is_said_counts_and_nothing_else(write: Write) -> None:
    root = write(
        uv_dot_lock=LOCK, pyproject_dot_toml=PYPROJECT, a_dot_txt="einops", b__c_dot_txt="numpy"
    )
    recipe = recipe_of(root, requirements=["b/c.txt", "pip: triton", "a.txt"])
    assert recipe.uv is None
    assert recipe.files.lines == ("numpy", "triton", "einops")
    assert recipe_of(root, requirements=["none"]).files.sources == ()
    both = recipe_of(root, requirements=["uv.lock", "a.txt"])
    assert both.uv is not None
    assert both.files.lines == ("einops",)


@pytest.mark.parametrize("name", [".dockerignore", "d/.dockerignore", "d/Dockerfile.dockerignore"])
def test_what_is_kept_out_of_a_dockerfiles_context_is_neither_copied_nor_refused(
    write: Write, name: str
) -> None:
    root = write(d__Dockerfile="FROM python:3.12\nCOPY conf /x\n", conf__tls_dot_key="hidden")
    (root / "conf" / "a.cfg").write_text("1")
    with pytest.raises(UsageError, match=r"conf/tls\.key"):
        recipe_of(root, image=["d/Dockerfile"])
    (root / name).write_text("**/*.key\n")
    recipe = recipe_of(root, image=["d/Dockerfile"])
    assert [copied.path for copied in recipe.base.copied] == ["conf/a.cfg"]


def test_a_dockerfile_stands_for_itself(write: Write) -> None:
    root = write(
        Dockerfile="FROM pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel\nCOPY a.cfg d /opt/\n",
        a_dot_cfg="1",
        d__x_dot_cfg="2",
        requirements_dot_txt="numpy",
    )
    recipe = recipe_of(root, image=["Dockerfile"])
    assert recipe.files.lines == ()
    assert [copied.path for copied in recipe.base.copied] == ["a.cfg", "d/x.cfg"]
    assert not recipe.base.adds_python
    said = recipe_of(root, image=["Dockerfile"], requirements=["requirements.txt"])
    assert said.files.lines == ("numpy",)


def test_a_bare_image_gets_a_python_and_the_usual_files(write: Write) -> None:
    recipe = recipe_of(
        write(requirements_dot_txt="numpy"),
        image=["nvidia/cuda:12.8.0-devel-ubuntu22.04", "apt: git"],
    )
    assert recipe.base.adds_python
    assert recipe.apt == ("git",)
    assert recipe.files.lines == ("numpy",)


def test_code_of_the_project_is_no_requirement(write: Write) -> None:
    root = write(
        requirements_dot_txt="-e .[gpu]\n./libs/one\n./libs/old\n",
        pyproject_dot_toml=PYPROJECT + "optional-dependencies.gpu = ['triton']\n",
        libs__one__pyproject_dot_toml='[project]\nname="one"\ndependencies=["six"]\n',
        libs__old__setup_dot_py="",
    )
    recipe = recipe_of(root)
    assert recipe.files.lines == ("torch", "triton", "six")
    assert "'libs/old'" in recipe.notes[0]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"requirements_dot_txt": "x @ git+https://example.org/x"}, ("git",)),
        ({"requirements_dot_txt": "x"}, ()),
        (
            {
                "uv_dot_lock": LOCK + "[[package]]\nname='g'\nsource={ git = 'x' }\n",
                "pyproject_dot_toml": PYPROJECT,
            },
            ("git",),
        ),
    ],
)
def test_git_is_there_where_it_is_needed(
    write: Write, files: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert recipe_of(write(**files)).apt == expected


def test_sources_that_only_uv_reads_are_noted(write: Write) -> None:
    text = PYPROJECT + "[tool.uv.sources]\ntorch = { index = 'cu130' }\nother = { path = '.' }\n"
    recipe = recipe_of(write(pyproject_dot_toml=text))
    [note] = recipe.notes
    assert "where torch come from, which only a uv.lock makes exact; run uv lock" in note


# what can't work is refused


@pytest.mark.parametrize(
    ("files", "lines", "words"),
    [
        (
            {"uv_dot_lock": LOCK.replace("3.11", "3.13"), "pyproject_dot_toml": PYPROJECT},
            {},
            ["uv.lock asks for Python >=3.13", "Python 3.12", "requires-python"],
        ),
        (
            {"pyproject_dot_toml": PYPROJECT + 'requires-python = "<3.12"\n'},
            {},
            ["pyproject.toml asks for Python <3.12", "Python 3.12"],
        ),
        (
            {},
            {"image": ["python:3.13-slim"]},
            ["python:3.13-slim has Python 3.13", "runs on Python 3.12", "python: add"],
        ),
        (
            {"Dockerfile": "ARG V=3.10\nFROM python:$V-slim\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, FROM python:3.10-slim has Python 3.10", "Python 3.12"],
        ),
        ({}, {"image": ["ghcr.io/team/base:1"]}, ["'ghcr.io/team/base:1'", "python: own"]),
        ({}, {"image": ["Dockerfile"]}, ["'Dockerfile'", "no such file"]),
        (
            {"Dockerfile": "FROM ubuntu\n\nCOPY . /app\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 3 copies '.'", "by name"],
        ),
        ({}, {"requirements": ["uv.lock"]}, ["'uv.lock'", "no such file"]),
        ({"uv_dot_lock": LOCK}, {}, ["no pyproject.toml"]),
        ({}, {"requirements": ["pyproject.toml"]}, ["'pyproject.toml'", "no such file"]),
        (
            {"pyproject_dot_toml": "[tool.poetry.dependencies]\npython='3'\n"},
            {"requirements": ["pyproject.toml"]},
            ["no [project]", "poetry export"],
        ),
        (
            {"uv_dot_lock": LOCK, "pyproject_dot_toml": PYPROJECT},
            {"requirements": ["uv.lock[tpu]"]},
            ["pyproject.toml has no extra 'tpu'; it has: none"],
        ),
        (
            {"requirements_dot_txt": "--index-url https://${A_TOKEN}@example.org"},
            {},
            ["requirements.txt: ${A_TOKEN}", "env:A_TOKEN to remotegpu_secrets"],
        ),
        (
            {"requirements_dot_txt": "numpy\n--index-url https://me:hidden@example.org"},
            {},
            ["requirements.txt, line 2: '--index-url https://...@", "a password", "${NAME}"],
        ),
        (
            {"requirements_dot_txt": f"x @ git+https://ghp_{'hidden' * 4}@github.com/x"},
            {},
            ["requirements.txt, line 1: 'x @ git+https://...@github.com/x'", "a password"],
        ),
        (
            {"requirements_dot_txt": "-c limits.txt", "limits_dot_txt": "-i http://u:hidden@h"},
            {},
            ["limits.txt, line 1", "a password"],
        ),
        ({}, {"requirements": ["pip: x@https://u:hidden@h/x.whl"]}, ["a password"]),
        ({}, {"image": ["env: INDEX=https://u:hidden@h"]}, ["sets INDEX", "env:INDEX"]),
        (
            {
                "uv_dot_lock": LOCK,
                "pyproject_dot_toml": PYPROJECT
                + "[[tool.uv.index]]\nname = 'a'\nurl = 'https://u:hidden@h/simple'\n",
            },
            {},
            ["pyproject.toml has an address with a password", "env:UV_INDEX_NAME_PASSWORD"],
        ),
        (
            {
                "uv_dot_lock": LOCK.replace("//reg", "//u:hidden@reg"),
                "pyproject_dot_toml": PYPROJECT,
            },
            {},
            ["uv.lock has an address with a password"],
        ),
        (
            {
                "uv_dot_lock": LOCK,
                "pyproject_dot_toml": PYPROJECT,
                "uv_dot_toml": "index-url = 'https://u:hidden@h/simple'",
            },
            {},
            ["uv.toml has an address with a password", "env:UV_INDEX_NAME_PASSWORD"],
        ),
        (
            {
                "uv_dot_lock": LOCK,
                "pyproject_dot_toml": PYPROJECT
                + "[tool.uv.extra-build-variables]\nflash-attn = { HF_TOKEN = 'hidden' }\n",
            },
            {},
            ["pyproject.toml sets HF_TOKEN for the build of flash-attn", "leave it out"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nCOPY .env /x\n", "_dot_env": "A=hidden"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 copies '.env', which may hold a secret", "remotegpu_secrets"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nCOPY conf /x\n", "conf__deep__tls_dot_key": "hidden"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 copies 'conf/deep/tls.key', which may hold a secret"],
        ),
        (
            {
                "Dockerfile": "FROM ubuntu\nCOPY a.txt /x\n",
                "a_dot_txt": "-----BEGIN RSA PRIVATE KEY-----\nhidden",
            },
            {"image": ["Dockerfile"]},
            ["line 2 copies 'a.txt', which may hold a secret"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nENV A=1 API_TOKEN='hidden'\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 sets API_TOKEN", "env:NAME in remotegpu_secrets"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nENV DB_PASSWORD hidden\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 sets DB_PASSWORD"],
        ),
        (
            {"Dockerfile": "ARG API_KEY=hidden\nFROM ubuntu\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 1 sets API_KEY"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nRUN cd / && HF_TOKEN=hidden hf download\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 sets HF_TOKEN"],
        ),
        (
            {"Dockerfile": "FROM ubuntu\nRUN git clone \\\n https://u:hidden@h/x\n"},
            {"image": ["Dockerfile"]},
            ["Dockerfile, line 2 has an address with a password"],
        ),
        (
            {"requirements_dot_txt": "pytest<9"},
            {},
            ["requirements.txt asks for pytest<9", "pytest 9.2.0", "major and minor"],
        ),
        (
            {
                "uv_dot_lock": LOCK + "[[package]]\nname='pytest'\nversion='8.4.2'\n",
                "pyproject_dot_toml": PYPROJECT,
            },
            {},
            ["uv.lock has pytest 8.4.2", "pytest 9.2.0", "pip install 'pytest==8.4.*'"],
        ),
        (
            {"requirements_dot_txt": "msgspec==0.18"},
            {},
            ["requirements.txt has msgspec 0.18", "msgspec>=0.20"],
        ),
    ],
)
def test_what_can_not_work_is_refused_with_the_way_out(
    write: Write, files: dict[str, str], lines: dict[str, list[str]], words: list[str]
) -> None:
    root = write(**files)
    with pytest.raises(UsageError) as caught:
        recipe_of(root, **lines)
    for word in words:
        assert word in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_what_only_looks_like_a_secret_is_taken(write: Write) -> None:
    root = write(
        Dockerfile=(
            "FROM python:3.12\nARG API_TOKEN\nENV TOKENIZERS_PARALLELISM=false MAX_TOKENS=512\n"
            "ENV HF_TOKEN=$API_TOKEN\nRUN --mount=type=secret,id=t TOKEN=$(cat /t) make\n"
            "RUN git clone https://x:${API_TOKEN}@h/x ssh://git@github.com/x\nCOPY conf /x\n"
        ),
        conf__tokens_dot_py="x = 1",
        conf____pycache____x_dot_pyc="1",
        requirements_dot_txt=(
            "-i https://${U}:${PW}@h\na @ git+ssh://git@h/a\nb @ https://team@dev.azure.com/b\n"
        ),
    )
    lines = {"image": ["Dockerfile"], "requirements": ["requirements.txt"]}
    recipe = recipe_of(root, **lines, secrets=["env:U", "env:PW"])
    assert len(recipe.files.lines) == 3
    assert "conf/tokens.py" in [copied.path for copied in recipe.base.copied]


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ("pytest", "pytest==9.2.0"),
        ("pytest>=8,<10", "pytest==9.2.0"),
        ("pytest==9.2.3", "pytest==9.2.*,==9.2.3"),
        ("pytest>=9.2.1", "pytest==9.2.*,>=9.2.1"),
        ("pytest<8; sys_platform == 'win32'", "pytest==9.2.0"),
    ],
)
def test_pytest_is_of_this_version_as_far_as_the_project_lets_it(
    write: Write, asked: str, own: str
) -> None:
    assert own in recipe_of(write(requirements_dot_txt=asked)).own


def test_what_a_lock_file_pins_stays_as_it_is(write: Write) -> None:
    pins = (
        "[[package]]\nname='pytest'\nversion='9.2.5'\n[[package]]\nname='msgspec'\nversion='0.21'"
    )
    recipe = recipe_of(write(uv_dot_lock=LOCK + pins, pyproject_dot_toml=PYPROJECT))
    assert recipe.own == ("msgspec==0.21", "pytest==9.2.5")


def test_some_are_the_same_as_here_unless_the_project_has_its_own(write: Write) -> None:
    here = replace(HERE, requires=("cloudpickle>=3.1",), same=(("cloudpickle", "3.1.2"),))
    for asked, own in (
        ("numpy", "cloudpickle==3.1.2"),
        ("cloudpickle==3.1.1", "cloudpickle==3.1.1"),
        ("cloudpickle>=3.2", "cloudpickle>=3.1"),
    ):
        assert own in recipe_of(write(requirements_dot_txt=asked), here).own


def test_secrets_of_installers_are_there_when_something_is_installed(write: Write) -> None:
    root = write(requirements_dot_txt="-i https://${PW}@example.org/simple\nnumpy")
    recipe = recipe_of(
        root, secrets=["env:PW", "env:WANDB_API_KEY", "env:UV_INDEX_X_PASSWORD", "hf"]
    )
    assert recipe.built_with == ("PW", "UV_INDEX_X_PASSWORD")


# its name


def test_only_what_makes_a_difference_makes_another_name(write: Write) -> None:
    root = write(
        requirements_dot_txt="numpy\n",
        uv_dot_lock=LOCK,
        pyproject_dot_toml=PYPROJECT,
        Dockerfile="FROM python:3.12\nCOPY a.cfg /\n",
        a_dot_cfg="1",
        test_x_dot_py="",
    )
    kinds: list[dict[str, list[str]]] = [
        {"requirements": ["requirements.txt"]},
        {"requirements": ["uv.lock"]},
        {"image": ["Dockerfile"]},
    ]
    before = [fingerprint(recipe_of(root, **kind), {}) for kind in kinds]
    write(
        requirements_dot_txt="# new\nnumpy  # why\n",
        pyproject_dot_toml=PYPROJECT + "[tool.ruff]\nline-length = 7\n",
        test_x_dot_py="x = 1",
    )
    assert [fingerprint(recipe_of(root, **kind), {}) for kind in kinds] == before
    write(
        requirements_dot_txt="numpy<3\n",
        uv_dot_lock=LOCK.replace("2.10", "2.11"),
        a_dot_cfg="2",
    )
    after = [fingerprint(recipe_of(root, **kind), {}) for kind in kinds]
    assert not set(after) & set(before)
    assert len({*after, *before}) == 6


def test_the_place_of_a_project_makes_no_difference(tmp_path: Path) -> None:
    names = []
    for folder in ("one", "two"):
        root = tmp_path / folder
        root.mkdir()
        (root / "Dockerfile").write_text("FROM python:3.12\n")
        names.append(fingerprint(recipe_of(root, image=["Dockerfile"]), MODAL))
    assert names[0] == names[1]


def test_versions_of_python_package_and_client_make_a_difference(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    others = [
        fingerprint(recipe, MODAL),
        fingerprint(recipe, {"modal": "1.6.5"}),
        fingerprint(recipe, {}),
        fingerprint(recipe_of(tmp_path, replace(HERE, python="3.13")), {}),
        fingerprint(recipe_of(tmp_path, replace(HERE, package="0.2")), {}),
        fingerprint(recipe_of(tmp_path, replace(HERE, pytest="9.2.1")), {}),
        fingerprint(recipe_of(tmp_path, secrets=["a"]), {}),
        fingerprint(recipe_of(tmp_path, secrets=["env:A"]), {}),
        fingerprint(recipe_of(tmp_path, volumes=["a:/a"]), {}),
        fingerprint(recipe_of(tmp_path, volumes=["a:/a:ro"]), {}),
        fingerprint(recipe_of(tmp_path, image=["env: A=1"]), {}),
        fingerprint(recipe_of(tmp_path, image=["env: A=2"]), {}),
    ]
    assert len(set(others)) == len(others)


words = st.text(alphabet="abcdefgh", min_size=2, max_size=6)


@given(st.lists(words, unique=True, min_size=2), st.randoms(use_true_random=False))
def test_order_counts_where_it_matters_only(names: list[str], random: Any) -> None:
    mixed = random.sample(names, len(names))
    one = declare([], [f"apt: {' '.join(names)}"], names, [f"{n}:/{n}" for n in names])
    two = declare([], [f"apt: {' '.join(mixed)}"], mixed, [f"{n}:/{n}" for n in mixed])
    here = Path("/nonexistent")
    assert fingerprint(read(here, one, HERE), {}) == fingerprint(read(here, two, HERE), {})
    lines = [Recipe(preload=tuple(order)) for order in (names, mixed)]
    assert (fingerprint(lines[0], {}) == fingerprint(lines[1], {})) == (names == mixed)


# why it is another one


def test_nothing_that_differs_gives_no_reason(tmp_path: Path) -> None:
    plain = to_plain(recipe_of(tmp_path), MODAL)
    assert why(json.loads(json.dumps(plain)), plain) == []
    assert why(None, plain) == ["no environment of this project is known here"]
    assert why({}, plain) == ["no environment of this project is known here"]


def changed(write: Write, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Say why two projects have different environments."""
    plain = []
    for state in (before, after):
        lines = {key: value for key, value in state.items() if isinstance(value, list)}
        root = write(**{key: value for key, value in state.items() if isinstance(value, str)})
        plain.append(to_plain(recipe_of(root, **lines), MODAL))
    return why(json.loads(json.dumps(plain[0])), plain[1])


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (
            {"uv_dot_lock": LOCK, "pyproject_dot_toml": PYPROJECT},
            {"uv_dot_lock": LOCK.replace("2.10", "2.11")},
            ["uv.lock changed: torch 2.10.0 -> 2.11.0"],
        ),
        (
            {"uv_dot_lock": LOCK, "pyproject_dot_toml": PYPROJECT},
            {"uv_dot_lock": LOCK + "# rebuilt\n"},
            ["uv.lock changed: other files of the same versions"],
        ),
        (
            {"uv_dot_lock": LOCK, "pyproject_dot_toml": PYPROJECT, "requirements": ["none"]},
            {},
            ["uv.lock is new"],
        ),
        (
            {
                "secrets": ["env:PW", "env:U"],
                "requirements_dot_txt": "numpy==1\neinops\n-i https://${U}:${PW}@a.org/?key=pw",
            },
            {
                "secrets": ["env:PW", "env:U"],
                "requirements_dot_txt": "numpy==2\ntorch==2.11.0\n-i https://${U}:${PW}@b.org/?key=pw",
            },
            [
                "requirements.txt: -i https://...@a.org/?... removed",
                "requirements.txt: -i https://...@b.org/?... added",
                "requirements.txt: einops removed",
                "requirements.txt: numpy ==1 -> ==2",
                "requirements.txt: torch==2.11.0 added",
            ],
        ),
        (
            {"image": ["apt: git"]},
            {"image": ["apt: libnuma1", "env: A=hidden"]},
            ["apt package libnuma1 added", "apt package git removed", "variable A added"],
        ),
        (
            {"image": ["env: A=one"]},
            {"image": ["env: A=two"]},
            ["variable A changed"],
        ),
        (
            {"image": ["ubuntu:22.04"]},
            {"image": ["ubuntu:24.04"]},
            ["the image changed: ubuntu:22.04 -> ubuntu:24.04"],
        ),
        (
            {"Dockerfile": "FROM python:3.12\n", "image": ["Dockerfile"]},
            {"Dockerfile": "FROM python:3.12\nRUN true", "image": ["Dockerfile"]},
            ["Dockerfile changed"],
        ),
        (
            {"secrets": ["a"], "volumes": ["m:/m"]},
            {"secrets": ["env:B"], "volumes": ["m:/m:ro"]},
            ["secret env:B added", "secret a removed", "volume at /m m:/m -> m:/m:ro"],
        ),
    ],
)
def test_a_difference_is_said_in_words(
    write: Write, before: dict[str, Any], after: dict[str, Any], reasons: list[str]
) -> None:
    assert changed(write, before, after) == reasons


def test_versions_are_said_too(tmp_path: Path) -> None:
    before = to_plain(recipe_of(tmp_path), {"modal": "1.6.3"})
    after = to_plain(recipe_of(tmp_path, Here("3.13", "9.3.0", "0.2", ())), MODAL)
    assert why(before, after) == [
        "Python changed: 3.12 -> 3.13",
        "pytest-remotegpu changed: 0.1 -> 0.2",
        "modal changed: 1.6.3 -> 1.6.4",
        "needed by pytest-remotegpu: msgspec removed",
        "needed by pytest-remotegpu: pytest ==9.2.0 -> ==9.3.0",
    ]


def test_many_differences_are_counted(write: Write) -> None:
    lines = "\n".join(f"package{number}" for number in range(30))
    found = changed(write, {"requirements_dot_txt": ""}, {"requirements_dot_txt": lines})
    assert len(found) == 8
    assert found[-1] == "... and 23 more like this"


recipes = st.builds(
    Recipe,
    python=words,
    package=words,
    apt=st.lists(words, unique=True).map(lambda found: tuple(sorted(found))),
    own=st.lists(words, unique=True).map(tuple),
    variables=st.dictionaries(words, words).map(lambda found: tuple(sorted(found.items()))),
    secrets=st.lists(words, unique=True).map(lambda found: tuple(sorted(found))),
    volumes=st.lists(words, unique=True).map(
        lambda found: tuple(Volume(n, f"/{n}") for n in found)
    ),
)


@given(recipes, recipes)
def test_there_is_a_reason_exactly_where_there_is_another_name(one: Recipe, two: Recipe) -> None:
    same_own = set(one.own) == set(two.own) and set(one.volumes) == set(two.volumes)
    if same_own and (one.own, one.volumes) != (two.own, two.volumes):
        return
    differs = fingerprint(one, {}) != fingerprint(two, {})
    assert bool(why(to_plain(one, MODAL), to_plain(two, MODAL))) is differs


# this package itself

SELF = replace(HERE, requires=(*HERE.requires, 'torch>=2.6; extra == "torch"'))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("pytest-remotegpu[modal]", ()),
        (
            "pytest_remotegpu[modal,torch]>=0.1 ; os_name == 'posix'",
            ('torch>=2.6; os_name == "posix"',),
        ),
        ("PyTest.RemoteGPU==0.1 --hash=sha256:aa", ()),
        ("git+https://example.org/x/pytest-remotegpu.git@main", ()),
        ("-e git+https://example.org/x/pytest-remotegpu#egg=pytest-remotegpu", ()),
        ("pytest-remotegpu @ file:///x/pytest_remotegpu-0.1-py3-none-any.whl", ()),
        ("./dist/pytest_remotegpu-0.1-py3-none-any.whl", ()),
        ("pytest-remotegpu-extras", ("pytest-remotegpu-extras",)),
    ],
)
def test_this_package_is_not_installed_whoever_asks_for_it(
    write: Write, line: str, instead: tuple[str, ...]
) -> None:
    root = write(
        requirements_dot_txt=f"numpy\n{line}\n-c c.txt\n", c_dot_txt="pytest-remotegpu<9\n"
    )
    files = recipe_of(root, SELF).files
    assert files.lines == ("numpy", *instead)
    assert files.constraints == ()


def test_this_package_is_not_installed_from_groups_and_lock_files(write: Write) -> None:
    group = '[dependency-groups]\ntest = ["pytest-remotegpu[modal]", "six"]\n'
    root = write(pyproject_dot_toml=PYPROJECT + group)
    assert recipe_of(root, SELF).files.lines == ("torch", "six")
    pinned = "[[package]]\nname = 'pytest-remotegpu'\nversion = '0.9'\n"
    write(uv_dot_lock=LOCK + pinned)
    recipe = recipe_of(root, SELF)
    assert recipe.uv is not None
    assert recipe.uv.local == ("mine", "pytest-remotegpu")
    [note] = recipe.notes
    assert "uv.lock has pytest-remotegpu 0.9, and the far side gets 0.1" in note
