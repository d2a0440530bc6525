"""Settings: which of several places wins, what can be read, where a value is said to come from."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import config
from pytest_remotegpu.config import parse_aliases, parse_size, resolve, split_spec
from pytest_remotegpu.errors import SpecError, UsageError

words = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True)
ENV = config.ENVIRONMENT


def origin(settings: config.Settings, name: str) -> str:
    (found,) = [setting.origin for setting in settings.origins if setting.name == name]
    return found


# --- specifications


@given(words, st.text())
def test_a_spec_is_cut_at_its_first_colon(name: str, rest: str) -> None:
    assert split_spec(f"{name}:{rest}") == (name, rest)
    assert split_spec(name) == (name, "")


@pytest.mark.parametrize(
    "spec",
    ["", ":", ":cpu", " local:cpu", "local :cpu", "2local", "-x", "--x:y", "a/b:c", "é:x", "a\n"],
)
def test_a_spec_without_a_backend(spec: str) -> None:
    with pytest.raises(SpecError) as caught:
        split_spec(spec)
    assert repr(spec) in str(caught.value)
    assert "BACKEND[:REST]" in str(caught.value)


@given(st.text())
def test_any_spec_is_read_or_refused(spec: str) -> None:
    try:
        name, rest = split_spec(spec)
    except SpecError:
        return
    assert spec in (name, f"{name}:{rest}")
    assert re.fullmatch(r"[A-Za-z][\w-]*", name)


# --- sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1KiB", 1024),
        ("1.5 MiB", 3 * 2**19),
        (" 2 gib ", 2**31),
        ("1kb", 1000),
        ("2M", 2_000_000),
        ("3GB", 3_000_000_000),
        ("7 B", 7),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "x") == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "big",
        "-1",
        "1 XB",
        "1e9",
        "1,5MB",
        ".5",
        "5.",
        "1 2",
        "0x10",
        "inf",
        "1GiB!",
        "1" * 400,
        "1" * 5000,
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text, "remotegpu_max_upload")
    assert "remotegpu_max_upload" in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "MiB" in str(caught.value)


@given(st.text())
def test_any_size_is_read_or_refused(text: str) -> None:
    try:
        size = parse_size(text, "x")
    except UsageError:
        return
    assert size >= 0


@given(st.integers(0, 10**12), st.sampled_from(sorted(config.UNITS)))
def test_whole_numbers_with_a_unit_are_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}", "x") == number * config.UNITS[unit]
    assert parse_size(f"{number} {unit.lower()}", "x") == number * config.UNITS[unit]


# --- aliases


@pytest.mark.parametrize(
    ("line", "alias"),
    [
        ("hpc = gpu", {"hpc": {}}),
        ("hpc=gpu()", {"hpc": {}}),
        ("  multi_gpu  =  gpu( 2 ) ", {"multi_gpu": {"count": 2}}),
        ("two = gpu(count=2)", {"two": {"count": 2}}),
    ],
)
def test_aliases(line: str, alias: dict[str, Any]) -> None:
    assert parse_aliases(["", line, "   "]) == alias


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hpc", "NAME = gpu"),
        ("hpc =", "NAME = gpu"),
        ("= gpu", "NAME = gpu"),
        ("a b = gpu", "NAME = gpu"),
        ("hpc = cpu", "NAME = gpu"),
        ("hpc = gpu(", "NAME = gpu"),
        ("hpc = gpu(2) or 1", "NAME = gpu"),
        ("hpc = gpu(n)", "NAME = gpu"),
        ("hpc = gpu(*[2])", "NAME = gpu"),
        ("hpc = gpu(**{'count': 2})", "NAME = gpu"),
        ("hpc = gpu({[]: 1})", "NAME = gpu"),
        ("hpc = os.gpu(2)", "NAME = gpu"),
        ("hpc = gpu(0)", "from 1 to"),
        ("hpc = gpu(cuont=2)", "'cuont'"),
        ("hpc = gpu(isolate=1)", "True or False"),
        ("gpu = gpu(2)", "gpu"),
    ],
)
def test_a_line_that_is_no_alias_is_shown_whole(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_aliases([line])
    assert repr(line) in str(caught.value)
    assert said in str(caught.value)


@given(st.text())
def test_any_line_is_read_or_refused(text: str) -> None:
    for line in (text, f"hpc = {text}", f"hpc = gpu({text})"):
        try:
            aliases = parse_aliases([line])
        except UsageError:
            continue
        assert set(aliases) <= {"hpc", line.partition("=")[0].strip()}


# --- precedence

PLACES = [
    ({}, {}, {}, None, "default"),
    ({}, {}, {"remotegpu": "a:1"}, "a:1", "ini file, remotegpu"),
    ({}, {ENV: "b:2"}, {"remotegpu": "a:1"}, "b:2", f"environment, {ENV}"),
    ({"remotegpu": "c:3"}, {ENV: "b:2"}, {"remotegpu": "a:1"}, "c:3", "command line, --remote"),
    ({"remotegpu": None}, {ENV: ""}, {"remotegpu": "a:1"}, "a:1", "ini file, remotegpu"),
    ({"remotegpu": ""}, {ENV: "b:2"}, {}, "", "command line, --remote"),
]


@pytest.mark.parametrize(("cli", "environ", "ini", "value", "said"), PLACES)
def test_command_line_over_environment_over_file(
    cli: dict[str, Any], environ: dict[str, str], ini: dict[str, Any], value: str | None, said: str
) -> None:
    settings = resolve(cli, environ, ini)
    assert settings.spec == value
    assert origin(settings, "remote") == said


def test_defaults() -> None:
    settings = resolve({}, {}, {})
    assert (settings.spec, settings.ship_all, settings.required, settings.plan, settings.debug) == (
        None,
        False,
        False,
        False,
        False,
    )
    assert (settings.max_upload, settings.max_artifact) == (2**30, 2**28)
    assert {setting.origin for setting in settings.origins} == {"default"}


def test_each_option_is_taken_and_named() -> None:
    seconds = {"remote_timeout": "1", "remote_run_timeout": "2.5", "remote_wait": "0"}
    results = {"remote_artifacts": "out", "remote_json": "run.json", "remote_max_cost": "$2.50"}
    given_ = {"remotegpu": "x", "remote_workers": "3", **results, **seconds}
    switches = {name: True for name in config.OPTIONS if name not in given_}
    settings = resolve({**switches, **given_}, {}, {})
    assert (settings.timeout, settings.run_timeout, settings.wait) == (1.0, 2.5, 0.0)
    assert settings.fresh
    assert settings.timeline
    assert settings.ship_all
    assert settings.required
    assert settings.plan
    assert settings.debug
    assert settings.artifacts == "out"
    assert (settings.json, settings.max_cost) == ("run.json", 2.5)
    assert settings.workers == 3
    named = {setting.origin for setting in settings.origins}
    assert {f"command line, {option}" for option in config.OPTIONS.values()} <= named


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "two", "10000", "\u0663", "1 2", "0x2"])
def test_no_number_of_workers(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of workers; give 1"):
        resolve({"remote_workers": text}, {}, {})


@pytest.mark.parametrize(("text", "workers"), [("1", 1), (" 2 ", 2), ("007", 7), ("9999", 9999)])
def test_number_of_workers(text: str, workers: int) -> None:
    assert resolve({"remote_workers": text}, {}, {}).workers == workers


def test_each_ini_option_is_taken_and_named() -> None:
    ini: dict[str, Any] = {
        "remotegpu": "ssh:box",
        "remotegpu_required": True,
        "remotegpu_python": "/py",
        "remotegpu_include": ["*.bin"],
        "remotegpu_exclude": ["*.tmp"],
        "remotegpu_env": ["HF_*"],
        "remotegpu_requirements": ["uv.lock"],
        "remotegpu_image": ["ubuntu"],
        "remotegpu_secrets": ["env:A"],
        "remotegpu_volumes": ["m:/m"],
        "remotegpu_collect": "far",
        "remotegpu_conftest": "far",
        "remotegpu_files": ["tests/kernels"],
        "remotegpu_aliases": ["hpc = gpu(2)"],
        "remotegpu_max_upload": "1MiB",
        "remotegpu_max_artifact": "1KiB",
        "remotegpu_timeout": "7",
        "remotegpu_idle": "8.5",
        "remotegpu_preload": ["jax"],
        "remotegpu_prices": ["H100 = 3.95", "command:env A=b = 0"],
    }
    assert set(ini) == set(config.INI)
    settings = resolve({}, {}, ini)
    assert (settings.spec, settings.required, settings.python) == ("ssh:box", True, "/py")
    assert (settings.include, settings.exclude, settings.env) == (("*.bin",), ("*.tmp",), ("HF_*",))
    assert settings.conftest_far
    assert (settings.collect_far, settings.files) == (True, ("tests/kernels",))
    assert settings.aliases == {"hpc": {"count": 2}}
    assert (settings.max_upload, settings.max_artifact) == (2**20, 2**10)
    assert (settings.requirements, settings.image) == (("uv.lock",), ("ubuntu",))
    assert (settings.secrets, settings.volumes) == (("env:A",), ("m:/m",))
    assert (settings.timeout, settings.idle, settings.preload) == (7.0, 8.5, ("jax",))
    assert settings.prices == {"H100": 3.95, "command:env A=b": 0.0}
    named = {setting.origin for setting in settings.origins}
    assert {f"ini file, {name}" for name in config.INI} <= named


@pytest.mark.parametrize("text", ["there", "", "FAR", "far here"])
def test_who_collects_is_here_or_far(text: str) -> None:
    with pytest.raises(UsageError, match=r"remotegpu_collect = .* is neither here nor far"):
        resolve({}, {}, {"remotegpu_collect": text})


def test_the_far_side_collects_unless_the_file_says_otherwise() -> None:
    settings = resolve({}, {}, {})
    assert (settings.collect_far, settings.conftest_far) == (True, False)
    assert origin(settings, "collect") == "default"
    assert not resolve({}, {}, {"remotegpu_collect": "here"}).collect_far
    both = {"remotegpu": "ssh:box", "remotegpu_collect": "here", "remotegpu_conftest": "far"}
    assert resolve({}, {}, both).collect_far  # there is no other who could


def test_a_switch_on_the_command_line_stands_over_the_file() -> None:
    settings = resolve({"gpu_required": True}, {}, {"remotegpu_required": False})
    assert settings.required
    assert origin(settings, "required") == "command line, --gpu-required"
    assert not resolve({}, {}, {"remotegpu_required": False}).required


def test_ci_is_a_reason_to_be_fresh() -> None:
    settings = resolve({}, {"CI": "true"}, {})
    assert settings.fresh
    assert origin(settings, "fresh") == "environment, CI"
    assert not resolve({}, {}, {}).fresh


@pytest.mark.parametrize("given", ["-1", "1e3", "nan", "inf", "ten", "", "1s"])
def test_seconds_that_are_none_name_their_option(given: str) -> None:
    with pytest.raises(UsageError, match=f"--remote-timeout = {given!r} is no number of seconds"):
        resolve({"remote_timeout": given}, {}, {})
    with pytest.raises(UsageError, match=f"remotegpu_idle = {given!r} is no number of seconds"):
        resolve({}, {}, {"remotegpu_idle": given})


@pytest.mark.parametrize("name", ["remotegpu_max_upload", "remotegpu_max_artifact"])
def test_a_size_that_is_none_names_its_option(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} = 'much'"):
        resolve({}, {}, {name: "much"})


@pytest.mark.parametrize(
    "line", ["no-such", "a,b", "--flag", "os;rm", "a b", "a.", ".a", "a..b", "a/b.py", "class", "3"]
)
def test_what_names_no_module(line: str) -> None:
    with pytest.raises(UsageError, match=r"remotegpu_preload has .*, which names no module") as e:
        resolve({}, {}, {"remotegpu_preload": ["jax", line]})
    assert repr(line) in str(e.value)


def test_names_of_modules() -> None:
    lines = ["jax", " jax.numpy ", "", "_private", "\u00fcber.m2"]
    found = resolve({}, {}, {"remotegpu_preload": lines}).preload
    assert found == ("jax", "jax.numpy", "_private", "\u00fcber.m2")
