"""Images as virtual environments: the recipe is followed, its log streams, a failure shows."""

from __future__ import annotations

import dataclasses
import functools
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import modal
import pytest

from loopback.builds import BuildError, Layer, find_python
from pytest_remotegpu import recipe as recipes
from pytest_remotegpu.backends.modal.image import build

from .standing import Stand, standing

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep what this module's tests have built."""
    return tmp_path_factory.mktemp("images")


@pytest.fixture
def stand(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Start a service whose images are environments of their own."""
    folder = tmp_path / "service"
    with standing(folder, monkeypatch, images="venv", image_cache=cache) as stand:
        yield stand


def wheel(folder: Path, name: str, version: str) -> Path:
    """Write a wheel: a test needs no registry."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    content = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*content, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    path.write_bytes(buffer.getvalue())
    return path


def recipe(*packages: str, **more: Any) -> Any:
    """Begin an image."""
    return modal.Image.debian_slim(HERE).uv_pip_install(*packages, **more)


def versions(stand: Stand) -> list[str]:
    """Return what a container of the newest deployment can import."""
    found = modal.Function.from_name("far", "packages", client=stand.client).remote()
    assert isinstance(found, list)
    return found


def test_an_image_holds_what_its_recipe_says(stand: Stand, tmp_path: Path) -> None:
    image = (
        recipe(str(wheel(tmp_path, "alpha_pack", "1.0")))
        .env({"COLOUR": "light blue", "SHADE": "${COLOUR}er"})
        .workdir("/work")
        .apt_install("git")
    )
    where, packages = stand.deploy("surroundings", "packages", image=image)
    seen = where.remote()
    assert seen["environ"]["COLOUR"] == "light blue"
    assert seen["cwd"].endswith("/work")
    assert seen["python"] != sys.executable
    found = packages.remote()
    assert "alpha_pack 1.0" in found
    # The client is in every container; what else this interpreter has is not.
    assert {"modal", "pytest"} & {each.split()[0] for each in found} == {"modal"}


def test_layers_build_on_each_other(stand: Stand, tmp_path: Path) -> None:
    first = recipe(str(wheel(tmp_path, "alpha_pack", "1.0")), str(wheel(tmp_path, "beta", "1.0")))
    second = first.pip_install(str(wheel(tmp_path, "beta", "2.0")))
    stand.deploy("packages", image=second)
    assert {"alpha_pack 1.0", "beta 2.0"} <= set(versions(stand))


def test_requirements_files_travel(stand: Stand, tmp_path: Path) -> None:
    wheel(tmp_path, "gamma", "3.1")
    requirements = tmp_path / "wanted.txt"
    requirements.write_text(f"--find-links {tmp_path}\n--no-index\ngamma==3.1\n")
    image = modal.Image.debian_slim(HERE).uv_pip_install(requirements=[str(requirements)])
    stand.deploy("packages", image=image)
    assert "gamma 3.1" in versions(stand)


def test_copied_files_are_in_the_image(stand: Stand, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("from here")
    image = modal.Image.debian_slim(HERE).add_local_file(note, "/root/note.txt", copy=True)
    [read] = stand.deploy("read", image=image)
    assert read.remote("note.txt") == "from here"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder of wheels, as an index that is no more than a list of links."""
    folder = tmp_path / "index"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


# Every shape that a project with an index of its own has, and that the SDK's own `uv_sync` refuses.
LOCKED = """
[project]
name = "mine"
version = "1"
requires-python = ">={python}"
dependencies = ["alpha-pack", "beta"]
[project.optional-dependencies]
cpu = ["gamma==1.0"]
gpu = ["gamma==2.0"]
[dependency-groups]
test = ["delta", {{ include-group = "more" }}]
more = ["epsilon"]
[tool.uv]
conflicts = [[{{ extra = "cpu" }}, {{ extra = "gpu" }}]]
[tool.uv.sources]
alpha-pack = [{{ index = "near", marker = "sys_platform == 'linux'" }},
  {{ index = "other", marker = "sys_platform != 'linux'" }}]
beta = {{ path = "libs/beta", editable = true }}
gamma = {{ index = "near" }}
delta = {{ index = "near" }}
epsilon = {{ index = "near" }}
[[tool.uv.index]]
name = "near"
url = "{index}"
format = "flat"
explicit = true
[[tool.uv.index]]
name = "other"
url = "{index}?other"
format = "flat"
explicit = true
"""


def test_a_lock_file_is_followed_whatever_its_project_says(
    stand: Stand, tmp_path: Path, index: tuple[Path, str]
) -> None:
    uv = pytest.importorskip("uv", reason="needs uv: pip install uv").find_uv_bin()
    for name, version in (("gamma", "1.0"), ("gamma", "2.0"), ("delta", "1.5"), ("epsilon", "3.0")):
        wheel(index[0], name, version)
    wheel(index[0], "alpha_pack", "1.0")
    project = tmp_path / "project"
    library = project / "libs" / "beta"
    library.mkdir(parents=True)
    (library / "pyproject.toml").write_text('[project]\nname = "beta"\nversion = "1"\n')
    (project / "pyproject.toml").write_text(LOCKED.format(python=HERE, index=index[1]))
    lock = [uv, "lock", "--project", str(project)]
    locked = subprocess.run(lock, check=False, capture_output=True, text=True)
    assert not locked.returncode, locked.stderr
    declared = recipes.declare(["uv.lock[gpu, group:test]"], [], [], [])
    made = recipes.read(project, declared, recipes.Here(HERE, "9.0.0"))
    staged = tmp_path / "staged"
    staged.mkdir()
    own = str(wheel(tmp_path, "zeta", "1.0"))
    data = recipes.encode(dataclasses.replace(made, own=(own,)))
    stand.deploy("packages", image=build(data, modal, staged, {}))
    found = {"alpha_pack 1.0", "gamma 2.0", "delta 1.5", "epsilon 3.0", "zeta 1.0"}
    assert found <= set(versions(stand))
    assert not any(each.startswith(("beta ", "mine ")) for each in versions(stand))


def test_what_was_built_is_not_built_again(stand: Stand, tmp_path: Path) -> None:
    image = recipe(str(wheel(tmp_path, "alpha_pack", "1.0")))
    stand.deploy("packages", image=image)
    count = stand.service.images.count
    stand.deploy("packages", image=recipe(str(tmp_path / "alpha_pack-1.0-py3-none-any.whl")))
    assert stand.service.images.count == count
    assert stand.service.deploys[-1].changed is False


def test_the_log_streams(stand: Stand, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    image = recipe(str(wheel(tmp_path, "delta", "1.0")))
    with modal.enable_output():
        stand.deploy("packages", image=image)
    shown = capfd.readouterr().out
    assert "Successfully installed delta-1.0" in shown


def test_a_package_that_does_not_exist(
    stand: Stand, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    image = recipe("epsilon", find_links=str(tmp_path), extra_options="--no-index")
    with modal.enable_output(), pytest.raises(modal.exception.ImageBuildError, match="failed"):
        stand.deploy("packages", image=image)
    assert "No matching distribution found for epsilon" in capfd.readouterr().out
    wheel(tmp_path, "epsilon", "1.0")
    stand.deploy("packages", image=image)  # a build that failed is tried again
    assert "epsilon 1.0" in versions(stand)


def test_a_build_may_be_made_to_fail(
    start: Callable[..., Stand], capfd: pytest.CaptureFixture[str]
) -> None:
    stand = start()  # where images are this interpreter, too
    stand.service.faults.build_failure = "error: no space left\nexit code: 28"
    with modal.enable_output(), pytest.raises(modal.exception.ImageBuildError):
        stand.deploy("add")
    assert "no space left" in capfd.readouterr().out
    stand.service.faults.clear()
    [add] = stand.deploy("add")
    assert add.remote(1, 1) == 2


def test_another_python() -> None:
    assert find_python(f"python:{HERE}.4-slim-bookworm") == Path(sys.executable)
    assert find_python("nvidia/cuda:12.4.1-devel-ubuntu22.04") == Path(sys.executable)
    with pytest.raises(BuildError, match=r"no python3\.99 on this machine"):
        find_python("python:3.99-slim")


async def _follow(layer: Layer) -> str:
    return "".join([line async for line in layer.pretend() if isinstance(line, str)])


def test_a_recipe_in_a_dockerfile(tmp_path: Path) -> None:
    import asyncio  # noqa: PLC0415 -- of this test only

    commands = ["FROM x", "# note", "ENV A=1 \\", '  B="2 $A"', "ENV C 3 4", "WORKDIR /w", "RUN x"]
    layer = Layer(None, commands, {}, tmp_path / "layer", tmp_path / "client")
    asyncio.run(_follow(layer))
    assert layer.result.environ == {"A": "1", "B": "2 ", "C": "3 4"}
    assert layer.result.workdir == "/w"
