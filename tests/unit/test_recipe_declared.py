"""The ini file's lines on the far environment: what is understood, and what is refused how."""

from __future__ import annotations

import contextlib
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import Volume, declare
from pytest_remotegpu.recipe.declared import Declared, Image, Source

OPTIONS = ("requirements", "image", "secrets", "volumes")


def said(**lines: list[str]) -> Declared:
    given = {name: lines.get(name, []) for name in OPTIONS}
    return declare(**given)


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("uv.lock", Source("uv.lock")),
        ("uv.lock[cuda]", Source("uv.lock", ("cuda",))),
        ("uv.lock [ cuda, group:test ,]", Source("uv.lock", ("cuda",), ("test",))),
        ("../uv.lock", Source("../uv.lock")),
        ("pyproject.toml[B_b, a]", Source("pyproject.toml", ("a", "b-b"))),
        ("sub\\pyproject.toml[group:GPU]", Source("sub/pyproject.toml", (), ("gpu",))),
        ("requirements-gpu.txt", Source("requirements-gpu.txt")),
        ("requirements/dev.in", Source("requirements/dev.in")),
        ("pip: torch==2.11.0", Source(requirements=("torch==2.11.0",))),
        ("pip: numpy >= 2", Source(requirements=("numpy>=2",))),
        ("pip: numpy>=2 einops", Source(requirements=("numpy>=2", "einops"))),
        (
            'pip: x; python_version < "4"',
            Source(requirements=('x; python_version < "4"',)),
        ),
    ],
)
def test_a_source_is_understood(line: str, source: Source) -> None:
    assert said(requirements=["# a comment", "", f" {line} "]).sources == (source,)


def test_nothing_said_is_not_the_same_as_nothing_wanted() -> None:
    assert said().sources is None
    assert said(requirements=["none"]).sources == ()


def test_an_image_is_understood() -> None:
    lines = [
        "nvidia/cuda:12.8.0-devel-ubuntu22.04",
        "apt: libnuma1 ninja-build",
        "apt: git, g++-12=12.3.0-1",
        "env: TORCH_CUDA_ARCH_LIST=9.0 ",
        "python: add",
    ]
    assert said(image=lines).image == Image(
        "nvidia/cuda:12.8.0-devel-ubuntu22.04",
        "add",
        ("g++-12=12.3.0-1", "git", "libnuma1", "ninja-build"),
        (("TORCH_CUDA_ARCH_LIST", "9.0"),),
    )


@pytest.mark.parametrize(
    "reference",
    [
        "ubuntu",
        "python:3.12-slim",
        "nvcr.io/nvidia/pytorch:25.01-py3",
        "localhost:5000/team/base@sha256:" + "0" * 64,
        "Dockerfile",
        "docker/gpu.Dockerfile",
        "docker\\Dockerfile.gpu",
        "ci/Containerfile",
    ],
)
def test_a_reference_is_understood(reference: str) -> None:
    assert said(image=[reference]).image.reference == reference.replace("\\", "/")


def test_secrets_are_names_at_the_provider_or_here() -> None:
    declared = said(secrets=["huggingface", "env:WANDB_API_KEY", "aws.prod-1"])
    assert declared.secrets == ("aws.prod-1", "huggingface")
    assert declared.local_secrets == ("WANDB_API_KEY",)


def test_volumes_are_named_with_their_place() -> None:
    declared = said(volumes=["models:/models:ro", "data:/data/", "more:/data2:rw"])
    assert declared.volumes == (
        Volume("data", "/data"),
        Volume("more", "/data2"),
        Volume("models", "/models", read_only=True),
    )


@pytest.mark.parametrize(
    ("option", "lines", "words"),
    [
        ("requirements", ["environment.yml"], ["environment.yml", "conda", "uv.lock[extra"]),
        ("requirements", ["poetry.lock"], ["poetry.lock", "poetry export"]),
        ("requirements", ["uv.lock[a"], ["uv.lock[a", "pip: REQUIREMENT"]),
        ("requirements", ["uv.lock[a b]"], ["'a b'", "group:NAME"]),
        ("requirements", ["requirements.txt[x]"], ["no extras"]),
        ("requirements", ["pip: ==2"], ["==2", "pip: torch==2.11.0"]),
        ("requirements", ["pip:"], ["pip: torch==2.11.0"]),
        ("requirements", ["none", "uv.lock"], ["none", "leave out one"]),
        ("requirements", ["uv.lock", "uv.lock[x]"], ["'uv.lock' twice"]),
        ("image", ["a", "b"], ["'a'", "'b'"]),
        ("image", ["No Such"], ["No Such", "apt: PACKAGE", "python: own"]),
        ("image", ["apt: -y"], ["'-y'", "apt: git"]),
        ("image", ["apt: a;rm"], ["a;rm"]),
        ("image", ["apt:"], ["nothing"]),
        ("image", ["env: X"], ["env: NAME=VALUE"]),
        ("image", ["env: 1X=2"], ["env: NAME=VALUE"]),
        ("image", ["ubuntu", "python: 3.12"], ["python: own", "python: add"]),
        ("image", ["python: own"], ["names no image"]),
        ("secrets", ["a", "a"], ["'a' twice"]),
        ("volumes", ["models"], ["models", "NAME:/path:ro"]),
        ("volumes", ["models:data"], ["NAME:/path"]),
        ("volumes", ["m:/x:rx"], ["NAME:/path:ro"]),
        ("volumes", ["m:/"], ["'/'", "/data"]),
        ("volumes", ["m:/root/x"], ["/root/x", "/data"]),
        ("volumes", ["m:/a/../etc"], ["/a/../etc"]),
        ("volumes", ["a:/x", "b:/x"], ["'/x' twice"]),
        ("volumes", ["a:/x", "b:/x/y"], ["'/x/y' inside '/x'"]),
    ],
)
def test_a_line_that_is_not_understood_is_refused(
    option: str, lines: list[str], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        said(**{option: lines})
    assert f"remotegpu_{option}" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("image", "env: HF_TOKEN=hf_canary"),
        ("image", "env: MY_API_KEY=hf_canary"),
        ("image", "env: X-Y=hf_canary"),
        ("secrets", "HF_TOKEN=hf_canary"),
        ("secrets", "env:HF_TOKEN=hf_canary"),
        ("secrets", "hf_canary!"),
    ],
)
def test_a_value_written_where_a_name_belongs_is_not_shown(option: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        said(**{option: [line]})
    assert "hf_canary" not in str(caught.value)
    assert "remotegpu_secrets" in str(caught.value) or "env: NAME=VALUE" in str(caught.value)


@given(st.lists(st.text(alphabet=string.printable, max_size=30), max_size=4), st.data())
def test_any_text_is_read_or_refused(lines: list[str], data: Any) -> None:
    option = data.draw(st.sampled_from(OPTIONS))
    with contextlib.suppress(UsageError):
        assert isinstance(said(**{option: lines}), Declared)


names = st.text(alphabet=string.ascii_lowercase + string.digits, min_size=2, max_size=8)


@given(st.lists(names, unique=True, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_packages_and_secrets_makes_no_difference(
    given: list[str], random: Any
) -> None:
    mixed = random.sample(given, len(given))
    assert said(secrets=given) == said(secrets=mixed)
    if given:
        assert said(image=[f"apt: {' '.join(given)}"]) == said(image=[f"apt: {','.join(mixed)}"])
