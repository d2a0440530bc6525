"""How an image is built here: what its recipe says about Python, done in a virtual environment.

Done are `FROM python:X.Y`, `COPY` from the context, `ENV`, `WORKDIR`, every `pip install`, also
uv's, by pip, and `uv sync` by uv itself. What would change the machine itself (apt, any other
command) is written to the log as left out: this is no container.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import posixpath
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

INSTALL = re.compile(
    r"^(?:(?:python3?(?:\.\d+)? -m )?pip3?|(?:/\.uv/)?uv pip)\s+install\s+(?P<rest>.*)$", re.DOTALL
)
SYNC = re.compile(r"^/\.uv/uv sync --project=(?P<project>\S+)\s(?P<rest>[^;&|]*)$")
UV_FLAGS = {"--compile-bytecode", "--system", "--no-cache", "--no-config"}
UV_VALUES = {"--python", "--torch-backend", "--python-version", "--python-platform"}


class BuildError(Exception):
    """The recipe can't be followed; the reason is the last line of the log."""


@dataclass
class Built:
    """What an image is here: `root` holds what it copied, `folders` its packages, nearest first."""

    python: Path
    environ: dict[str, str] = field(default_factory=dict)
    workdir: str = "/root"
    roots: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def find_python(tag: str) -> Path:
    """Find the interpreter that a base image promises; this one where it promises none."""
    match = re.match(r"^(?:.*/)?python:(3\.\d+)", tag)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if match is None or match[1] == ours:
        return Path(sys.executable)
    found = shutil.which(f"python{match[1]}")
    if found is None:
        raise BuildError(f"{tag}: no python{match[1]} on this machine")
    return Path(found)


def client_folder(folder: Path) -> Path:
    """Make a folder with Modal's client and what it needs, and nothing else of ours.

    The real service mounts its client into every container in the same way.
    """
    if folder.exists():
        return folder
    draft = folder.with_suffix(".draft")
    draft.mkdir(parents=True)
    pending, seen = ["modal"], set()
    while pending:
        name = pending.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform, or an extra
        _link_packages(distribution, draft)
        pending += [
            re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
            for requirement in distribution.requires or []
            if "extra ==" not in requirement
        ]
    draft.rename(folder)
    return folder


def _link_packages(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        place = Path(str(distribution.locate_file(name)))
        with contextlib.suppress(FileExistsError):
            if place.exists():
                (folder / name).symlink_to(place)


@dataclass
class Layer:
    """One layer of an image: what it starts from, what it does, and the files that it may copy."""

    base: Built | None
    commands: list[str]
    context: dict[str, bytes]
    folder: Path
    client: Path  # packages that every image has, below its own
    result: Built = field(init=False)

    def _begin(self) -> None:
        built = self.base or Built(Path(sys.executable))
        root = self.folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        self.result = Built(
            built.python, dict(built.environ), built.workdir, (root, *built.roots), built.folders
        )

    async def pretend(self) -> AsyncIterator[str | Built]:
        """Follow the recipe but for Python and its packages: those are this interpreter's."""
        self._begin()
        for command in _joined(self.commands):
            yield f"=> {command}\n"
            word, _, rest = command.partition(" ")
            if word.upper() in {"ENV", "WORKDIR", "COPY"}:
                async for line in self._follow(word.upper(), rest.strip()):
                    yield line
        yield self.result

    async def build(self) -> AsyncIterator[str | Built]:
        """Follow the recipe: yield the log, line by line, and last what came of it."""
        marker = self.folder / "built.json"
        if marker.exists():
            yield "cached\n"
            yield _read(marker)
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self._begin()
        for command in _joined(self.commands):
            yield f"=> {command}\n"
            word, _, rest = command.partition(" ")
            async for line in self._follow(word.upper(), rest.strip()):
                yield line
        if self.base is None:
            await self._environment()
        _write(marker, self.result)
        yield self.result

    async def _follow(self, word: str, rest: str) -> AsyncIterator[str]:
        result = self.result
        if word == "FROM" and self.base is None:
            result.python = find_python(rest.split(maxsplit=1)[0])
        elif word == "ENV":
            result.environ |= _variables(rest, result.environ)
        elif word == "WORKDIR":
            result.workdir = rest
        elif word == "COPY":
            self._copy(rest)
        elif word == "RUN":
            async for line in self._run(rest):
                yield line

    def _copy(self, rest: str) -> None:
        *sources, target = [part for part in shlex.split(rest) if not part.startswith("--")]
        if "--from" in rest:
            return
        for source in sources:
            inside = posixpath.normpath(f"/{source}").lstrip("/")
            for name, data in self.context.items():
                relative = name.lstrip("/")
                if relative == inside:
                    tail = Path(relative).name if target.endswith("/") else ""
                elif not inside or relative.startswith(f"{inside.rstrip('/')}/"):
                    tail = relative[len(inside) :].lstrip("/")
                else:
                    continue
                place = self.result.roots[0] / target.lstrip("/") / tail
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)

    async def _run(self, command: str) -> AsyncIterator[str]:
        sync = SYNC.match(command.strip())
        if sync is not None:
            async for line in self._sync(self._here(sync["project"]), sync["rest"]):
                yield line
            return
        match = INSTALL.match(command.strip())
        if match is None or "&&" in command:
            yield "   left out: this is no container\n"
            return
        arguments = [self._here(part) for part in _for_pip(shlex.split(match["rest"]))]
        if not any(not part.startswith("-") for part in arguments) or set(arguments) <= {
            *("--upgrade", "-U", "pip", "wheel", "uv", "setuptools")
        }:
            yield "   left out: pip is there\n"
            return
        async for line in self._install(arguments):
            yield line

    def _here(self, part: str) -> str:
        for root in self.result.roots:
            place = root / part.lstrip("/")
            if part.startswith("/") and place.exists():
                return str(place)
        return part

    async def _install(self, arguments: Iterable[str]) -> AsyncIterator[str]:
        await self._environment()
        pip = [sys.executable, "-m", "pip", "--python", str(self.result.python), "install"]
        quiet = ["--no-input", "--progress-bar=off", "--disable-pip-version-check"]
        async for line in _output([*pip, *quiet, *arguments]):
            yield line

    async def _sync(self, project: str, rest: str) -> AsyncIterator[str]:
        """Have uv install what a lock file holds; this machine gets uv itself if it has none."""
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        found, own = shutil.which("uv", path=beside), self.folder.parent / "uv"
        if found is None and not own.exists():
            quiet = ["--no-input", "--progress-bar=off", "--disable-pip-version-check"]
            draft = own.with_suffix(f".{self.folder.name}")
            pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(draft), "uv"]
            async for line in _output(pip):
                yield line
            draft.rename(own)
        await self._environment()
        uv = found or str(own / "bin" / "uv")
        arguments = ["--project", project, *_without_python(shlex.split(rest))]
        into = {"UV_PROJECT_ENVIRONMENT": str(self.folder / "venv")}
        async for line in _output([uv, "sync", *arguments], **into):
            yield line

    async def _environment(self) -> None:
        """Give the layer a virtual environment of its own, above those that it starts from."""
        result, venv = self.result, self.folder / "venv"
        if venv.exists():
            return
        async for _ in _output([str(result.python), "-m", "venv", "--without-pip", str(venv)]):
            pass
        packages = next((venv / "lib").glob("python*/site-packages"))
        below = "".join(f"{each}\n" for each in (*result.folders, self.client))
        (packages / "below.pth").write_text(below, encoding="utf-8")
        result.python = venv / "bin" / "python"
        result.folders = (packages, *result.folders)


def _write(marker: Path, built: Built) -> None:
    content = {
        "python": str(built.python),
        "environ": built.environ,
        "workdir": built.workdir,
        "roots": [str(each) for each in built.roots],
        "folders": [str(each) for each in built.folders],
    }
    marker.write_text(json.dumps(content), encoding="utf-8")


def _read(marker: Path) -> Built:
    content = json.loads(marker.read_text(encoding="utf-8"))
    return Built(
        Path(content["python"]),
        content["environ"],
        content["workdir"],
        tuple(map(Path, content["roots"])),
        tuple(map(Path, content["folders"])),
    )


def _joined(commands: Iterable[str]) -> Iterable[str]:
    """Join the lines that a backslash continues; leave out comments and empty lines."""
    text = "\n".join(commands).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]


def _variables(rest: str, known: dict[str, str]) -> dict[str, str]:
    if "=" not in rest.split(maxsplit=1)[0]:
        name, _, value = rest.partition(" ")
        return {name: value.strip()}
    pairs = (part.partition("=") for part in shlex.split(rest))
    return {name: _expanded(value, known) for name, _, value in pairs}


def _expanded(value: str, known: dict[str, str]) -> str:
    return re.sub(
        r"\$(?:\{(\w+)\}|(\w+))", lambda match: known.get(match[1] or match[2], ""), value
    )


def _without_python(parts: list[str]) -> list[str]:
    """Leave out `--python $(command -v python)`: the environment is another one here."""
    if "$(command" not in parts:
        return parts
    at = parts.index("$(command")
    return [*parts[: at - 1], *parts[at + 3 :]]


def _for_pip(parts: list[str]) -> list[str]:
    """Say to pip what was meant for uv."""
    result, position = [], 0
    parts = _without_python(parts)
    while position < len(parts):
        part = parts[position]
        position += 1
        if part in UV_VALUES:
            position += 1
        elif part == "--requirements":
            result.append("--requirement")
        elif part not in UV_FLAGS and part.partition("=")[0] not in UV_VALUES:
            result.append(part)
    return result


async def _output(command: list[str], **more: str) -> AsyncIterator[str]:
    """Run a command of the build, yield its lines, and raise where it fails."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**environ, **more},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            yield line.decode("utf-8", "replace")
        status = await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if status:
        raise BuildError(f"exit code: {status}")
