"""The image of an environment, as Modal builds it.

Runs in the courier's process. Knows recipes and Modal's images; nothing of the user's code is ever
in one, and of this package only its own files are added, when a container starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import Base, Recipe, Step, UvProject, decode

__all__ = ["build", "staged"]

PACKAGE: Final = "pytest_remotegpu"
HOME: Final = PurePosixPath("/root")
"""Where a container finds modules that are added when it starts."""
CONSTRAINTS: Final = "/.remotegpu/constraints.txt"
UV: Final = PurePosixPath("/.uv")
"""Where uv, what it reads, and the environment that it makes are in an image, as the SDK has it."""
UV_LOCK: Final = "uv/uv.lock"
UV_PYPROJECT: Final = "uv/pyproject.toml"
"""Where these two are staged, in a folder that is copied as it is."""
UV_VERSION: Final = "0.13.9"
"""One for all, so that this package's version tells what an image is made with."""
UV_ITSELF: Final = f"ghcr.io/astral-sh/uv:{UV_VERSION}"
SHOWN: Final = ("METADATA", "entry_points.txt")
"""Of an installed package's metadata, what tells its version and that it is a plugin."""
EVEN_THERE: Final = "--break-system-packages"
"""A distribution's own Python is to be used where the image says so; nobody else needs it there."""


def build(recipe: Mapping[str, Any], modal: Any, folder: Path, environ: Mapping[str, str]) -> Any:
    """Describe the image; nothing is sent by that.

    :param recipe: as :func:`pytest_remotegpu.recipe.encode` gives it.
    :param folder: an empty one, which must stay until the image is built.
    :param environ: has the values of local secrets.
    :raises UsageError: where a file of the recipe has gone meanwhile.
    """
    wanted = decode(recipe)
    files = staged(wanted, folder)
    secrets = _build_secrets(wanted, modal, environ)
    image = _base(wanted, modal)
    if wanted.apt:
        image = image.apt_install(*wanted.apt)
    if wanted.variables:
        image = image.env(dict(wanted.variables))
    if wanted.uv is not None:
        image = _synced(image, wanted.uv, files[UV_LOCK].parent, secrets)
    if "requirements.txt" in files:
        image = _installed(image, files, secrets)
    # in a layer of their own: they change more often than all that the project asks for
    image = image.uv_pip_install(*wanted.own, extra_options=EVEN_THERE, uv_version=UV_VERSION)
    for step in wanted.steps:
        kwargs = dict(step.kwargs)
        if "secrets" in kwargs:
            kwargs["secrets"] = [modal.Secret.from_name(name) for name in kwargs["secrets"]]
        if step.method == "add_local_dir":
            kwargs["ignore"] = _all_but(step, modal)
        image = getattr(image, step.method)(*step.args, **kwargs)
    return _with_package(image, modal)


def staged(recipe: Recipe, folder: Path) -> dict[str, Path]:
    """Write the files that installers read; those of the project itself stay where they are.

    :return: their paths by name.
    """
    texts: dict[str, str] = {}
    if recipe.uv is not None:
        texts |= {UV_LOCK: recipe.uv.lock, UV_PYPROJECT: recipe.uv.pyproject}
    if recipe.files.lines:
        texts["requirements.txt"] = _lines(recipe.files.lines)
        if recipe.files.constraints:
            texts["constraints.txt"] = _lines(recipe.files.constraints)
    if recipe.base.dockerfile:
        texts["Dockerfile"] = recipe.base.text
    paths = {name: folder / name for name in texts}
    for name, path in paths.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[name], encoding="utf-8", newline="\n")
    return paths


def _lines(lines: tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _build_secrets(recipe: Recipe, modal: Any, environ: Mapping[str, str]) -> list[Any]:
    """Hand over what installing needs; the service keeps it apart from the image."""
    values = {name: environ[name] for name in recipe.built_with if name in environ}
    return [modal.Secret.from_dict(values)] if values else []


def _base(recipe: Recipe, modal: Any) -> Any:
    base: Base = recipe.base
    added = recipe.python if base.adds_python else None
    if base.dockerfile:
        context = Path(base.context)
        path = context / base.dockerfile
        if not path.is_file():
            raise UsageError(f"remotegpu_image names {base.dockerfile!r}, and it has gone")
        copied = {PurePosixPath(file.path) for file in base.copied}
        return modal.Image.from_dockerfile(
            path,
            context_dir=context,
            add_python=added,
            ignore=lambda place: PurePosixPath(place.as_posix()) not in copied,
        )
    if base.reference:
        return modal.Image.from_registry(base.reference, add_python=added)
    return modal.Image.debian_slim(python_version=recipe.python)


def _synced(image: Any, project: UvProject, folder: Path, secrets: list[Any]) -> Any:
    """Install what a lock file holds, apart from code that travels with the project.

    Not by the SDK's ``uv_sync``: that reads the file with a parser of its own, which knows less of
    TOML than uv does, and so refuses what most projects with an index of their own have.
    """
    chosen = [
        *(f"--group={name}" for name in project.groups),
        *(f"--extra={name}" for name in project.extras),
        *(f"--no-install-package={name}" for name in project.local),
    ]
    options = ["--frozen", "--no-install-workspace", "--compile-bytecode", *map(quote, chosen)]
    sync = f"{UV}/uv sync --project={UV} --python $(command -v python) {' '.join(options)}"
    return image.add_local_dir(folder, str(UV), copy=True).dockerfile_commands(
        f"COPY --from={UV_ITSELF} /uv {UV}/uv",
        f"RUN {sync}",
        f"ENV PATH={UV}/.venv/bin:$PATH",
        secrets=secrets,
    )


def _installed(image: Any, files: Mapping[str, Path], secrets: list[Any]) -> Any:
    options = [EVEN_THERE]
    if "constraints.txt" in files:
        image = image.add_local_file(files["constraints.txt"], CONSTRAINTS, copy=True)
        options.append(f"-c {CONSTRAINTS}")
    return image.uv_pip_install(
        requirements=[str(files["requirements.txt"])],
        extra_options=" ".join(options),
        uv_version=UV_VERSION,
        secrets=secrets,
    )


def _all_but(step: Step, modal: Any) -> Callable[[Path], bool]:
    """Ignore what a folder has beside the files that its step knows, and what the step ignores."""
    known = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name, _digest in step.files}
    ignored = step.kwargs.get("ignore") or []
    matcher = modal.FilePatternMatcher(*([ignored] if isinstance(ignored, str) else ignored))
    return lambda path: PurePosixPath(path.as_posix()) not in known or matcher(path)


def _with_package(image: Any, modal: Any) -> Any:
    """Add this package's own files, and what tells Python and pytest that it is installed."""
    root = Path(__file__).parents[2]
    image = image.add_local_dir(
        root, str(HOME / PACKAGE), ignore=~modal.FilePatternMatcher("**/*.py")
    )
    for local, remote in _metadata():
        image = image.add_local_file(local, remote)
    return image


def _metadata() -> Iterator[tuple[Path, str]]:
    """Give the files of this package's metadata, and where Python looks for them."""
    try:
        found: Distribution = distribution(PACKAGE)
    except PackageNotFoundError:
        return
    folder = HOME / f"{PACKAGE}-{found.version}.dist-info"
    for file in found.files or ():
        if file.name in SHOWN and file.parent.name.endswith(".dist-info"):
            yield Path(str(found.locate_file(file))), str(folder / file.name)
