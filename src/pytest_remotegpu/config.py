"""Settings: what holds in this session, and where each value was said.

Reads plain values; knows nothing of pytest, of backends or of files. Precedence, weakest first:
default, ini file, environment, command line. A test's own mark stands above them all and is no
setting.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from msgspec import Struct

from pytest_remotegpu import gpu
from pytest_remotegpu.errors import SpecError, UsageError

__all__ = [
    "ENVIRONMENT",
    "INI",
    "OPTIONS",
    "Setting",
    "Settings",
    "parse_aliases",
    "parse_modules",
    "parse_prices",
    "parse_seconds",
    "parse_side",
    "parse_size",
    "parse_usd",
    "parse_workers",
    "resolve",
    "split_spec",
]

ENVIRONMENT: Final = "PYTEST_REMOTEGPU"

OPTIONS: Final[dict[str, str]] = {
    "remotegpu": "--remote",
    "remote_all": "--remote-all",
    "gpu_required": "--gpu-required",
    "remote_plan": "--remote-plan",
    "remote_debug": "--remote-debug",
    "remote_artifacts": "--remote-artifacts",
    "remote_timeout": "--remote-timeout",
    "remote_run_timeout": "--remote-run-timeout",
    "remote_wait": "--remote-wait",
    "remote_fresh": "--remote-fresh",
    "remote_timeline": "--remote-timeline",
    "remote_max_cost": "--remote-max-cost",
    "remote_json": "--remote-json",
    "remote_watch": "--remote-watch",
    "remote_workers": "--remote-workers",
    "remote_rev": "--remote-rev",
    "remote_ephemeral": "--remote-ephemeral",
    "remote_oom_retry": "--remote-oom-retry",
}
"""Command-line options, by the name of their value."""

SIZES: Final = {"remotegpu_max_upload": "1GiB", "remotegpu_max_artifact": "256MiB"}
"""What holds where the ini file says nothing."""

SECONDS: Final = {"timeout": 600.0, "run_timeout": 0.0, "wait": 300.0, "idle": 600.0}
"""Limits where nobody says otherwise; 0 is none."""

INI: Final[dict[str, tuple[str, str, str]]] = {
    "remotegpu": ("string", "", "where marked tests run: the value of --remote"),
    "remotegpu_required": ("bool", "", "the same as --gpu-required"),
    "remotegpu_python": (
        "string",
        "",
        "the far interpreter (local, command and ssh; a rented machine has its own)",
    ),
    "remotegpu_timeout": ("string", "", "the same as --remote-timeout"),
    "remotegpu_idle": (
        "string",
        "",
        f"seconds for which the warm process stays when nobody needs it ({SECONDS['idle']:g})",
    ),
    "remotegpu_preload": (
        "linelist",
        "",
        "modules that the warm process imports ahead, besides torch and numpy",
    ),
    "remotegpu_include": (
        "linelist",
        "",
        "globs of files to send although git ignores them or they look secret",
    ),
    "remotegpu_exclude": ("linelist", "", "globs of files never to send"),
    "remotegpu_env": (
        "linelist",
        "",
        "names or patterns of environment variables that are passed on",
    ),
    "remotegpu_requirements": (
        "linelist",
        "",
        "what a rented machine gets: uv.lock[extra, group:NAME], requirements.txt, pip: NAME, none",
    ),
    "remotegpu_image": (
        "linelist",
        "",
        "what that is installed on: an image or a Dockerfile; apt: PACKAGE ...; env: NAME=VALUE",
    ),
    "remotegpu_secrets": (
        "linelist",
        "",
        "secrets by name: of the provider, or env:NAME for a variable of this process",
    ),
    "remotegpu_volumes": ("linelist", "", "volumes of the provider: NAME:/path or NAME:/path:ro"),
    "remotegpu_collect": (
        "string",
        "",
        "here: files with gpu tests are imported and collected here, not on the far side (far)",
    ),
    "remotegpu_conftest": (
        "string",
        "",
        "far: conftests are loaded on the far side only, which then collects and runs all (here)",
    ),
    "remotegpu_files": (
        "linelist",
        "",
        "globs of files that are collected on the far side, whatever their source says",
    ),
    "remotegpu_aliases": ("linelist", "", "markers that mean gpu: NAME = gpu(2)"),
    "remotegpu_prices": (
        "linelist",
        "",
        "USD for one GPU and an hour: TYPE = 2.50, or a backend instead of the type",
    ),
    "remotegpu_max_upload": (
        "string",
        "",
        f"the most that the project's files may take together ({SIZES['remotegpu_max_upload']})",
    ),
    "remotegpu_max_artifact": (
        "string",
        "",
        f"the most that one test's artifacts may take ({SIZES['remotegpu_max_artifact']})",
    ),
}
"""Ini options: kind, default, help."""

SIDES: Final = ("here", "far")
DUTIES: Final = {"remotegpu_collect": "far", "remotegpu_conftest": "here"}
"""Who collects, and where conftests are loaded, where the ini file says nothing."""

MOST_WORKERS: Final = 9999

UNITS: Final = {
    "": 1,
    "B": 1,
    "K": 10**3,
    "KB": 10**3,
    "KIB": 2**10,
    "M": 10**6,
    "MB": 10**6,
    "MIB": 2**20,
    "G": 10**9,
    "GB": 10**9,
    "GIB": 2**30,
}


class Setting(Struct, frozen=True):
    """One value and its origin, as ``--remote-plan`` prints them."""

    name: str
    value: Any
    origin: str


class Settings(Struct, frozen=True):
    """All settings of a session.

    :ivar spec: where to run, ``None`` for here.
    :ivar fresh: whether every process of the far side is to be a new one.
    :ivar workers: the most that may share the tests of one shape.
    :ivar ephemeral: whether what is deployed for this session ends with it.
    :ivar watch: whether to run again after each save.
    :ivar oom_retry: cards on which tests are tried again that lacked memory.
    :ivar rev: the commit whose files run there; empty for the working tree.
    :ivar timeout: seconds for one test, 0 for no limit; so are the next three.
    :ivar run_timeout: for all of them. :ivar wait: for cards. :ivar idle: of a warm process.
    :ivar max_cost: USD for all that runs far away, 0 for no limit.
    :ivar json: the file for the run as data.
    :ivar prices: USD for one GPU and an hour, by type of card or backend.
    :ivar max_upload: bytes. :ivar max_artifact: bytes for one test.
    :ivar collect_far: whether files with gpu tests are collected on the far side.
    :ivar conftest_far: whether conftests are loaded there only; then all is collected there.
    :ivar files: globs of files that are, whatever their source says.
    :ivar aliases: marker names and the ``gpu`` arguments that they stand for.
    :ivar origins: every setting with its origin.
    """

    spec: str | None
    ship_all: bool
    required: bool
    plan: bool
    debug: bool
    artifacts: str | None
    fresh: bool
    timeline: bool
    workers: int
    rev: str
    ephemeral: bool
    watch: bool
    oom_retry: str | None
    timeout: float
    run_timeout: float
    wait: float
    idle: float
    max_cost: float
    json: str | None
    prices: Mapping[str, float]
    python: str
    preload: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    env: tuple[str, ...]
    requirements: tuple[str, ...]
    image: tuple[str, ...]
    secrets: tuple[str, ...]
    volumes: tuple[str, ...]
    collect_far: bool
    conftest_far: bool
    files: tuple[str, ...]
    aliases: Mapping[str, Mapping[str, Any]]
    max_upload: int
    max_artifact: int
    origins: tuple[Setting, ...]


def split_spec(spec: str) -> tuple[str, str]:
    """Split ``BACKEND[:REST]`` at its first colon.

    :raises SpecError: where it names no backend.
    """
    name, _, rest = spec.partition(":")
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise SpecError(
            f"--remote={spec!r} names no backend; it reads BACKEND[:REST], such as local:cpu"
        )
    return name, rest


def parse_size(text: str, name: str) -> int:
    """Read a number of bytes such as ``256MiB``, ``1GB`` or ``4096``.

    :param name: the option, for the message.
    :raises UsageError: where it is none.
    """
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise UsageError(
            f"{name} = {text!r} is no size; write bytes, or a number with KiB, MiB or GiB"
        )
    return int(Fraction(match[1]) * unit)


def parse_seconds(text: str, name: str) -> float:
    """Read a number of seconds, 0 or more.

    :param name: the option, for the message.
    :raises UsageError: where it is none.
    """
    if not re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", text, re.ASCII):
        raise UsageError(f"{name} = {text!r} is no number of seconds, such as 90 or 0.5; 0 is none")
    return float(text)


def parse_usd(text: str, name: str) -> float:
    """Read an amount of money in USD, such as ``2.50``.

    :param name: the option, for the message.
    :raises UsageError: where it is none; 0 is one.
    """
    match = re.fullmatch(r"\s*\$?(\d{1,9}(?:\.\d{1,9})?)\s*", text, re.ASCII)
    if match is None:
        raise UsageError(f"{name} = {text!r} is no amount of USD, such as 2.50")
    return float(match[1])


def parse_prices(lines: Iterable[str]) -> dict[str, float]:
    """Read lines of ``TYPE = USD`` or ``BACKEND = USD``, for one GPU and an hour.

    The amount stands behind the last ``=``, since a command may hold others.

    :raises UsageError: for a line that reads otherwise, or a name that has two prices.
    """
    prices: dict[str, float] = {}
    for line in filter(None, (line.strip() for line in lines)):
        name, _, amount = (part.strip() for part in line.rpartition("="))
        if not name:
            raise UsageError(
                f"remotegpu_prices has {line!r}; a line reads H100 = 3.95 or ssh:gpubox = 1.20, "
                "in USD for one GPU and an hour"
            )
        if name in prices:
            raise UsageError(f"remotegpu_prices has two prices for {name!r}; leave out one")
        prices[name] = parse_usd(amount, f"remotegpu_prices: {name}")
    return prices


def parse_workers(text: str) -> int:
    """Read how many workers may share the tests of one shape.

    :raises UsageError: where it is no number from 1 on.
    """
    if not re.fullmatch(r"\s*0*[1-9]\d{0,3}\s*", text, re.ASCII):
        raise UsageError(
            f"--remote-workers={text!r} is no number of workers; give 1 (one for each shape) "
            f"to {MOST_WORKERS}"
        )
    return int(text)


def parse_side(text: str, name: str) -> bool:
    """Read which side does something: say whether it is the far one.

    :param name: the option, for the message.
    :raises UsageError: where it is neither.
    """
    if text.strip() not in SIDES:
        raise UsageError(f"{name} = {text!r} is neither {' nor '.join(SIDES)}")
    return text.strip() == "far"


def parse_modules(lines: Iterable[str], name: str) -> tuple[str, ...]:
    """Read dotted names of modules, one a line.

    :param name: the option, for the message.
    :raises UsageError: for a line that is none.
    """
    modules = tuple(filter(None, (line.strip() for line in lines)))
    for module in modules:
        parts = module.split(".")
        if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
            raise UsageError(
                f"{name} has {module!r}, which names no module; write one name a line, "
                "such as jax or jax.numpy"
            )
    return modules


ALIAS: Final = re.compile(r"(?P<name>[^\W\d]\w*)\s*(?:\(\s*(?P<given>[^\W\d]\w*)\s*\))?")
"""The left side of a line: a marker, and what its first argument is called on the right side."""


def parse_aliases(lines: list[str]) -> dict[str, dict[str, Any]]:
    """Read lines of ``NAME = gpu``, ``NAME = gpu(2)`` or ``NAME(n) = gpu(n)``.

    :raises UsageError: for a line that reads otherwise, or a ``gpu(...)`` that is not valid.
    """
    aliases = {}
    for line in filter(None, (line.strip() for line in lines)):
        left, equals, meaning = (part.strip() for part in line.partition("="))
        read = ALIAS.fullmatch(left)
        if not equals or read is None or read["name"] == gpu.MARK:
            raise UsageError(
                f"remotegpu_aliases has {line!r}; a line reads NAME = gpu or NAME = gpu(2)"
            )
        aliases[read["name"]] = _alias_arguments(line, meaning, read["given"] or "")
    return aliases


def _alias_arguments(line: str, meaning: str, given: str) -> dict[str, Any]:
    try:
        tree = ast.parse(meaning, mode="eval").body
        if isinstance(tree, ast.Name) and tree.id == gpu.MARK:
            return {}
        if (
            isinstance(tree, ast.Call)
            and isinstance(tree.func, ast.Name)
            and tree.func.id == gpu.MARK
            and all(word.arg for word in tree.keywords)
        ):
            words = dict(enumerate(tree.args)) | {str(w.arg): w.value for w in tree.keywords}
            taken = {k for k, v in words.items() if isinstance(v, ast.Name) and v.id == given}
            read = {k: ast.literal_eval(v) for k, v in words.items() if k not in taken}
            args = tuple(value for name, value in read.items() if isinstance(name, int))
            found = gpu.parse_mark(args, {k: v for k, v in read.items() if isinstance(k, str)})
            return found | {k if isinstance(k, str) else "count": gpu.Given(given) for k in taken}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    except UsageError as error:
        raise UsageError(f"remotegpu_aliases has {line!r}: {error}") from None
    raise UsageError(f"remotegpu_aliases has {line!r}; a line reads NAME = gpu or NAME = gpu(2)")


def _refuse_empty(cli: Mapping[str, Any]) -> None:
    for option in ("remote_rev", "remote_json", "remote_artifacts"):
        if cli.get(option) == "":
            raise UsageError(
                f"{OPTIONS[option]}= is empty; give it a value, or leave the option out"
                " (is a variable unset in the command?)"
            )


def _far_duties(pick: Callable[..., Any], spec: str | None) -> tuple[bool, bool]:
    """Say whether the far side collects, and whether conftests are loaded there only."""
    collect, conftest = (
        parse_side(str(pick(name.removeprefix("remotegpu_"), default, key=name)), name)
        for name, default in DUTIES.items()
    )
    conftest = conftest and spec is not None  # without a far side nobody else could load them
    return collect or conftest, conftest


def resolve(cli: Mapping[str, Any], environ: Mapping[str, str], ini: Mapping[str, Any]) -> Settings:
    """Bring command line, environment and ini file together.

    :param cli: values of :data:`OPTIONS` that were given; the others are missing or ``None``.
    :param ini: values of :data:`INI`; an option that the file does not set is missing.
    :raises UsageError: for a value that can't be read.
    """
    _refuse_empty(cli)
    found: dict[str, Setting] = {}

    def pick(
        name: str, default: Any, *, option: str = "", variable: str = "", key: str = ""
    ) -> Any:
        if option and cli.get(option) not in (None, False):
            setting = Setting(name, cli[option], f"command line, {OPTIONS[option]}")
        elif variable and environ.get(variable):
            setting = Setting(name, environ[variable], f"environment, {variable}")
        elif key and key in ini:
            setting = Setting(name, ini[key], f"ini file, {key}")
        else:
            setting = Setting(name, default, "default")
        found[name] = setting
        return setting.value

    def size(name: str) -> int:
        key = f"remotegpu_{name}"
        return parse_size(str(pick(name, SIZES[key], key=key)), key)

    def seconds(name: str, *, option: bool = True, ini: bool = False) -> float:
        chosen = {"option": f"remote_{name}"} if option else {}
        key = {"key": f"remotegpu_{name}"} if ini else {}
        given = pick(name, SECONDS[name], **chosen, **key)
        return parse_seconds(str(given), found[name].origin.rpartition(" ")[2])

    def cap() -> float:
        given = pick("max_cost", None, option="remote_max_cost")
        amount = 0.0 if given is None else parse_usd(str(given), OPTIONS["remote_max_cost"])
        if given is not None and not amount:
            raise UsageError("--remote-max-cost = 0 lets nothing run; give an amount above 0")
        return amount

    def lines(name: str) -> tuple[str, ...]:
        return tuple(pick(name, (), key=f"remotegpu_{name}"))

    spec = pick("remote", None, option="remotegpu", variable=ENVIRONMENT, key="remotegpu")
    collect_far, conftest_far = _far_duties(pick, spec)
    return Settings(
        spec=spec,
        ship_all=any((pick("all", False, option="remote_all"), conftest_far)),
        required=bool(pick("required", False, option="gpu_required", key="remotegpu_required")),
        plan=bool(pick("plan", False, option="remote_plan")),
        debug=bool(pick("debug", False, option="remote_debug")),
        artifacts=pick("artifacts", None, option="remote_artifacts"),
        fresh=bool(pick("fresh", False, option="remote_fresh", variable="CI")),
        timeline=bool(pick("timeline", False, option="remote_timeline")),
        workers=parse_workers(str(pick("workers", 1, option="remote_workers"))),
        rev=str(pick("rev", "", option="remote_rev")),
        ephemeral=bool(pick("ephemeral", False, option="remote_ephemeral")),
        watch=bool(pick("watch", False, option="remote_watch")),
        oom_retry=pick("oom_retry", None, option="remote_oom_retry"),
        timeout=seconds("timeout", ini=True),
        run_timeout=seconds("run_timeout"),
        wait=seconds("wait"),
        idle=seconds("idle", option=False, ini=True),
        max_cost=cap(),
        json=pick("json", None, option="remote_json"),
        prices=parse_prices(lines("prices")),
        python=pick("python", "", key="remotegpu_python"),
        preload=parse_modules(lines("preload"), "remotegpu_preload"),
        include=lines("include"),
        exclude=lines("exclude"),
        env=lines("env"),
        requirements=lines("requirements"),
        image=lines("image"),
        secrets=lines("secrets"),
        volumes=lines("volumes"),
        collect_far=collect_far,
        conftest_far=conftest_far,
        files=lines("files"),
        aliases=parse_aliases(list(lines("aliases"))),
        max_upload=size("max_upload"),
        max_artifact=size("max_artifact"),
        origins=tuple(found.values()),
    )
