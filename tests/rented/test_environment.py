"""The environment that a session gets on Modal: what the service is asked to build, and what not.

Modal's real client speaks to a service on the loopback interface, which records what it is asked;
there, each image is the interpreter of these tests.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from session.running import run, said

pytest.importorskip("modal")
from loopback import LoopbackModal

from .test_command import remotegpu

pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
MODAL = "--remote=modal:T4"
CANARY = "canary-5f0b"
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
TEST = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_one():
        assert os.environ.get("A_TOKEN") == "canary-" + "5f0b"
"""
LOCK = f"""
version = 1
requires-python = ">={MINOR}"
[[package]]
name = "mine"
source = {{ editable = "." }}
[[package]]
name = "torch"
version = "2.10.0"
source = {{ registry = "https://registry.example/simple" }}
"""
PYPROJECT = """
[project]
name = "mine"
version = "1"
dependencies = ["torch"]
optional-dependencies.gpu = ["triton"]
[dependency-groups]
test = ["pytest"]
[tool.uv.workspace]
members = ["libs/*"]
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackModal]:
    """Have a service that Modal's client takes for the real one."""
    with LoopbackModal(tmp_path / "modal") as service:
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("A_TOKEN", CANARY)
        yield service
    gc.collect()  # connections of clients that were killed are dropped in this test, not later


def commands(service: LoopbackModal) -> list[str]:
    """Give the lines of all Dockerfiles, in the order in which their images were asked for."""
    return [line for image in service.world.images.values() for line in image.dockerfile_commands]


def copied(service: LoopbackModal) -> dict[str, str]:
    """Give the files that images were built from, by name."""
    return {
        file.filename: bytes(file.data).decode()
        for image in service.world.images.values()
        for file in image.context_files
    }


def mounted(service: LoopbackModal) -> set[str]:
    """Name the files that containers get when they start."""
    return {
        file.filename
        for record in service.requests
        if record.method == "MountGetOrCreate"
        for file in record.request.files
    }


def contents(service: LoopbackModal) -> dict[str, str]:
    """Give the texts of the files that were sent, by their place in an image or container."""
    return {
        file.filename: service.world.files[file.sha256_hex].decode()
        for files in service.world.mounts.values()
        for file in files
        if file.sha256_hex in service.world.files
    }


def write_ini(pytester: pytest.Pytester, **options: list[str]) -> None:
    lines = ["[pytest]", "remotegpu_secrets = env:A_TOKEN"]
    for name, values in options.items():
        lines += [f"remotegpu_{name} =", *(f"    {value}" for value in values)]
    pytester.makeini("\n".join(lines))


def test_the_recipe_is_built_in_layers_and_nothing_of_the_project_is_in_them(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(test_secretive=TEST)
    pytester.makefile(".txt", requirements="numpy==2.3.0\n-r more.txt\n-c limits.txt")
    pytester.makefile(".txt", more="-i https://u:${A_TOKEN}@example.org/simple\neinops")
    pytester.makefile(".txt", limits="scipy<2")
    write_ini(
        pytester,
        image=["nvidia/cuda:12.8.0-devel-ubuntu22.04", "apt: libnuma1", "env: CUDA_HOME=/cuda"],
    )
    run(pytester, MODAL).assert_outcomes(passed=1)

    lines = commands(service)
    assert lines[0] == "FROM nvidia/cuda:12.8.0-devel-ubuntu22.04"
    for wanted in ("RUN apt-get install -y libnuma1", "ENV CUDA_HOME=/cuda"):
        assert wanted in lines
    installs = [line for line in lines if "uv pip install" in line]
    assert "-c /.remotegpu/constraints.txt" in installs[0]
    assert f"pytest=={version('pytest')}" in installs[1]
    brought = [line for line in lines if "astral-sh/uv" in line]
    assert brought
    assert not any("latest" in line for line in brought)
    assert f"cloudpickle=={version('cloudpickle')}" in installs[1]
    assert copied(service) == {
        "/.0_requirements.txt": (
            "numpy==2.3.0\n-i https://u:${A_TOKEN}@example.org/simple\neinops\n"
        )
    }
    files = mounted(service)
    assert "/constraints.txt" in {Path("/", Path(name).name).as_posix() for name in files}
    assert not any("secretive" in name for name in files)
    assert not any(b"test_secretive" in bytes(data) for data in service.world.files.values())


def test_a_container_gets_this_package_and_nothing_else(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    write_ini(pytester)
    run(pytester, MODAL).assert_outcomes(passed=1)
    files = mounted(service)
    ours = {name for name in files if name.startswith("/root/pytest_remotegpu/")}
    assert "/root/pytest_remotegpu/plugin.py" in ours
    assert "/root/pytest_remotegpu/backends/modal/container.py" in ours
    assert all(name.endswith(".py") for name in ours)
    folder = f"/root/pytest_remotegpu-{version('pytest-remotegpu')}.dist-info"
    assert files - ours == {f"{folder}/METADATA", f"{folder}/entry_points.txt"}


def test_a_lock_file_is_installed_as_it_is_without_code_of_the_project(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.path.joinpath("uv.lock").write_text(LOCK)
    pytester.path.joinpath("pyproject.toml").write_text(PYPROJECT)
    write_ini(pytester)
    run(pytester, MODAL).assert_outcomes(passed=1)
    lines = commands(service)
    assert lines[0].startswith(f"FROM python:{MINOR}")
    [sync] = [line for line in lines if " sync " in line]
    for option in ("--frozen", "--extra=gpu", "--group=test", "--no-install-package=mine"):
        assert option in sync
    assert "--python $(command -v python)" in sync
    staged = contents(service)
    assert staged["/.uv/uv.lock"] == LOCK
    assert "workspace" not in staged["/.uv/pyproject.toml"]
    assert not any("pytest_remotegpu" in path for path in staged if path.startswith("/.uv"))


def test_a_dockerfile_is_built_in_the_folder_of_the_project(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.mkdir("docker")
    dockerfile = f"FROM python:{MINOR}-slim\nCOPY settings.cfg conf /opt/\nRUN true\n"
    pytester.path.joinpath("docker", "Dockerfile").write_text(dockerfile)
    pytester.path.joinpath("settings.cfg").write_text("x = 1")
    pytester.path.joinpath("other.cfg").write_text("x = 2")
    for name in ("in.cfg", "out.cfg", ".env"):
        pytester.path.joinpath("conf").mkdir(exist_ok=True)
        pytester.path.joinpath("conf", name).write_text("x = 3")
    pytester.path.joinpath(".dockerignore").write_text("**/.env\nconf/*\n!conf/in.cfg\n")
    write_ini(pytester, image=["docker/Dockerfile"])
    run(pytester, MODAL).assert_outcomes(passed=1)
    lines = commands(service)
    assert lines[:3] == dockerfile.splitlines()
    assert not any("add_python" in line or "COPY /python/." in line for line in lines)
    assert any(name.endswith("settings.cfg") for name in mounted(service))
    assert any(name.endswith("in.cfg") for name in mounted(service))
    assert not any(name.endswith(("other.cfg", "out.cfg", ".env")) for name in mounted(service))


def test_a_hook_adds_to_the_image_after_all_else(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.makeconftest("""
        def pytest_remotegpu_modal_image(config, image):
            assert config.rootpath.is_dir()
            image = image.apt_install("tree").env({"FROM_HOOK": "1"})
            return image.run_commands("echo hook", secrets=["shared"])
    """)
    service.add_secret("shared", {"B_TOKEN": CANARY})
    write_ini(pytester)
    run(pytester, MODAL).assert_outcomes(passed=1)
    lines = commands(service)
    own = next(place for place, line in enumerate(lines) if f"pytest=={version('pytest')}" in line)
    added = [line for line in lines[own + 1 :] if not line.startswith("FROM")]
    assert added == [
        "RUN apt-get update",
        "RUN apt-get install -y tree",
        "ENV FROM_HOOK=1",
        "RUN echo hook",
    ]


def test_a_card_that_building_rents_is_told_and_under_a_cap_refused(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """Where it would have to be built, whatever pytest's cache has kept of it."""
    pytester.makepyfile(TEST)
    pytester.makeconftest("""
        def pytest_remotegpu_modal_image(image):
            return image.run_commands("echo hook", gpu="T4")
    """)
    write_ini(pytester)
    capped = (MODAL, "--remote-max-cost=5")
    what = "run_commands has gpu='T4', so building the image rents a GPU"
    refusal = f"{what}, which --remote-max-cost can't limit; leave out gpu=, or"

    def refused(way: str, *more: str) -> None:
        result = run(pytester, *capped, *more)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert f"{refusal} {way}" in said(result)
        result.assert_outcomes()
        assert not service.deploys

    refused("build once without that option")
    refused("leave out --remote-max-cost", "--remote-ephemeral")
    result = run(pytester, MODAL)
    result.assert_outcomes(passed=1)
    assert f"{what}, which is in no cost that is shown here" in said(result)
    # now it is built, as the refusal has advised
    run(pytester, *capped).assert_outcomes(passed=1)
    run(pytester, *capped, "-p", "no:cacheprovider").assert_outcomes(passed=1)
    run(pytester, *capped, "--cache-clear").assert_outcomes(passed=1)
    # and after the app has been taken away it is not, although the cache has it
    remotegpu("stop", "--all")
    service.deploys.clear()
    refused("build once without that option")


def test_a_folder_that_a_hook_copies_comes_without_its_secrets(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.makeconftest("""
        def pytest_remotegpu_modal_image(image):
            return image.add_local_dir("assets", "/opt/assets", ignore=["*.log"])
    """)
    assets = pytester.mkdir("assets")
    for name, text in {"model.cfg": "x = 1", ".env": "A=secret-2b", "a.log": "log-2b"}.items():
        (assets / name).write_text(text)
    write_ini(pytester)
    result = run(pytester, MODAL)
    result.assert_outcomes(passed=1)
    assert "add_local_dir('assets') leaves out '.env', which may hold a secret" in said(result)
    in_image = {path for path in contents(service) if path.startswith("/opt/")}
    assert in_image == {"/opt/assets/model.cfg"}
    assert b"-2b" not in b"".join(service.world.files.values())


def test_a_hook_that_copies_the_project_ends_the_session_before_anything_is_sent(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.makeconftest("""
        def pytest_remotegpu_modal_image(image):
            return image.add_local_dir(".", "/x")
    """)
    write_ini(pytester)
    for more in ([], ["--remote-plan"]):
        result = pytester.runpytest_subprocess(MODAL, *more)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines("*add_local_dir copies '.', so a copy of your code would be*")
    assert not service.calls
    assert not service.world.files


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("image.apt_install('git')", "*returned nothing, though it did apt_install; *return*"),
        ("return image.run_function(print)", "*conftest.py:2: AttributeError: *'run_function'*"),
        ("return 1 / 0", "*failed at *conftest.py:2: ZeroDivisionError: *"),
    ],
)
def test_a_hook_that_fails_ends_the_session_with_its_place(
    pytester: pytest.Pytester, service: LoopbackModal, body: str, words: str
) -> None:
    pytester.makepyfile(TEST)
    pytester.makeconftest(f"def pytest_remotegpu_modal_image(image):\n    {body}")
    write_ini(pytester)
    result = pytester.runpytest_subprocess(MODAL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(words)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert not service.calls


def test_a_hook_that_gives_no_image_ends_the_session(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.makeconftest("def pytest_remotegpu_modal_image(image): return 7")
    write_ini(pytester)
    result = pytester.runpytest_subprocess(MODAL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*pytest_remotegpu_modal_image returned int; return what*")
    assert not service.calls


def test_nothing_is_deployed_where_nothing_changed_and_else_the_reason_is_said(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    requirements = pytester.path / "requirements.txt"
    requirements.write_text("numpy==2.2.0\n")
    write_ini(pytester)
    first = said(run(pytester, MODAL))
    assert "no environment of this project is known here" in first
    requirements.write_text("numpy==2.2.0  # as ever\n")
    assert "remote: deploy" not in said(run(pytester, MODAL))
    requirements.write_text("numpy==2.3.0\neinops\n")
    third = said(run(pytester, MODAL))
    assert "requirements.txt: einops added; requirements.txt: numpy ==2.2.0 -> ==2.3.0" in third
    assert len(service.deploys) == 2


@contextlib.contextmanager
def command_lines() -> Iterator[set[bytes]]:
    """Gather the command lines of all processes that there are meanwhile."""
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(process.read_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def test_a_secret_is_in_nothing_but_the_order(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(
        TEST
        + """
    @pytest.mark.gpu
    def test_that_fails():
        size = len(os.environ["A_TOKEN"])
        print("it has", size, "letters")
        assert size == 0
"""
    )
    pytester.makefile(".txt", requirements="-i https://u:${A_TOKEN}@example.org/simple\nnumpy")
    write_ini(pytester)
    files = ("--junitxml=junit.xml", "--remote-timeline", "--remote-json=run.json")
    with command_lines() as lines:
        result = run(pytester, MODAL, "--remote-debug", "-v", *files)
    result.assert_outcomes(passed=1, failed=1)
    assert "it has 11 letters" in said(result)
    assert CANARY not in said(result)
    found = {place for place, data in service.everything() if CANARY.encode() in data}
    # what carries the order, and what the service keeps as a secret for building
    carries = ("FunctionMap", "QueuePut", "SecretGetOrCreate")
    assert {place for place in found if not place.endswith(carries)} <= {
        place for place in found if place.startswith("secret/")
    }
    assert any(place.startswith("secret/") for place in found)
    assert (pytester.path / "run.json").is_file()
    for top in (pytester.path, Path(os.environ["XDG_CACHE_HOME"])):
        for file in top.rglob("*"):
            assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file
    assert any(b"backends" in line or b"courier" in line for line in lines)
    assert not any(CANARY.encode() in line for line in lines)


def test_models_come_from_a_volume_and_nothing_is_asked_of_a_hub(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_offline():
            assert os.environ["HF_HUB_OFFLINE"] == "1"
            assert os.environ["HF_HOME"] == "/models/hf"
    """)
    offline = ["env: HF_HUB_OFFLINE=1", "env: HF_HOME=/models/hf"]
    write_ini(pytester, image=["python:" + MINOR, *offline], volumes=["models:/models:ro"])
    run(pytester, MODAL).assert_outcomes(passed=1)
    [created] = [request for request in service.requests if request.method == "FunctionCreate"]
    mounts = created.request.function.volume_mounts
    assert [(mount.mount_path, mount.read_only) for mount in mounts] == [("/models", True)]


@pytest.mark.parametrize(
    ("options", "files", "words"),
    [
        ({"image": ["python:3.9-slim"]}, {}, ["Python 3.9", f"runs on Python {MINOR}"]),
        ({"requirements": ["gone.txt"]}, {}, ["'gone.txt'", "no such file"]),
        ({}, {"requirements.txt": "pytest<7"}, ["pytest<7", version("pytest")]),
        ({"secrets": ["env:NO_SUCH_TOKEN"]}, {}, ["env:NO_SUCH_TOKEN", "no such variable"]),
        ({"volumes": ["x"]}, {}, ["remotegpu_volumes has 'x'"]),
    ],
)
def test_what_can_not_work_ends_the_session_before_anything_is_rented(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    options: dict[str, list[str]],
    files: dict[str, str],
    words: list[str],
) -> None:
    pytester.makepyfile(TEST)
    for name, text in files.items():
        pytester.path.joinpath(name).write_text(text)
    lines = ["[pytest]"]
    for name, values in options.items():
        lines += [f"remotegpu_{name} =", *(f"    {value}" for value in values)]
    pytester.makeini("\n".join(lines))
    result = pytester.runpytest_subprocess(MODAL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    for word in words:
        assert word in result.stderr.str()
    assert not service.requests


def test_secrets_and_volumes_of_the_provider_are_attached_by_name(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_one():
            assert os.environ["SHARED"] == "of the provider"
    """)
    service.add_secret("shared", {"SHARED": "of the provider"})
    lines = ["remotegpu_secrets = shared", "remotegpu_volumes =", "    models:/models:ro"]
    pytester.makeini("\n".join(["[pytest]", *lines, "    scratch:/scratch"]))
    run(pytester, MODAL).assert_outcomes(passed=1)
    [asked] = [r.request for r in service.requests if r.method == "FunctionCreate"]
    mounts = asked.function.volume_mounts or asked.function_data.volume_mounts
    assert {mount.mount_path: mount.read_only for mount in mounts} == {
        "/models": True,
        "/scratch": False,
    }


def test_a_folder_of_the_project_called_modal_is_no_sdk_and_stays_the_projects_own(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkpydir("modal")
    (folder / "deploy.py").write_text("WHOSE = 'the project'")
    pytester.makepyfile("""
        import pytest
        import modal.deploy

        def test_here():
            assert modal.deploy.WHOSE == "the project"

        @pytest.mark.gpu
        def test_there():
            assert modal.deploy.WHOSE == "the project"
    """)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    run(pytester, MODAL).assert_outcomes(passed=2)
    assert len(service.deploys) == 1


def test_a_plan_says_what_would_be_built_and_asks_nobody(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    pytester.makefile(".txt", requirements="numpy\n")
    write_ini(pytester, image=["ubuntu:24.04", "apt: git", "env: A=hidden"])
    result = run(pytester, MODAL, "--remote-plan", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        [
            f"environment: image: ubuntu:24.04, Python {MINOR} added",
            "environment: apt: git",
            "environment: installs: requirements.txt, 1 line",
            f"environment: needs: *pytest=={version('pytest')}",
            "environment: variables: A",
            "environment: secrets: env:A_TOKEN",
            "environment: new, since no environment of this project is known here",
        ]
    )
    plan = said(result).partition("environment: image")[2]
    assert "hidden" not in plan
    assert CANARY not in said(result)
    assert not service.requests


def test_a_package_that_the_image_lacks_is_named_with_the_setting_for_it(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = pytester.path.parent / f"{pytester.path.name}-lib" / "site-packages"
    metadata = site / "not_in_image-1.5.dist-info"
    metadata.mkdir(parents=True)
    (site / "httpx_not_in_image.py").touch()
    (metadata / "METADATA").write_text("Name: not-in-image\nVersion: 1.5\n", encoding="utf-8")
    (metadata / "top_level.txt").write_text("httpx_not_in_image\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
    pytester.makepyfile("""
        import httpx_not_in_image as m
        import pytest

        @pytest.mark.gpu
        def test_m(): assert m
    """)
    text = said(run(pytester, MODAL))
    assert f"host lacks: httpx_not_in_image ({sys.executable})" in text
    assert "the line 'pip: not-in-image==1.5' to remotegpu_requirements" in text
    assert len(service.deploys) == 1


def test_a_strange_thing_in_the_place_of_the_lock_for_deploying_ends_the_session(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pytester.makepyfile(TEST)
    write_ini(pytester)
    place = tmp_path_factory.mktemp("caches")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    run(pytester, MODAL).assert_outcomes(passed=1)
    folder = place / "pytest-remotegpu" / "deploying"
    assert not list(folder.iterdir())
    [deploy] = service.deploys
    lock = folder / deploy.name
    lock.mkdir()
    with LoopbackModal(pytester.path.parent / f"{pytester.path.name}-second") as second:
        for name, value in second.environ.items():
            monkeypatch.setenv(name, value)
        result = run(pytester, MODAL)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert f"{lock.name}'" in said(result)
        assert "remove it, or name another folder in XDG_CACHE_HOME" in said(result)
        assert not second.deploys
    assert len(service.deploys) == 1


def test_what_is_declared_and_not_in_the_image_is_named_with_the_lines_for_it(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyprojecttoml("""
        [project]
        name = "mine"
        dependencies = ["pytest"]
        [project.optional-dependencies]
        test = ["pytest"]
        vision = ["seen-of-nobody", "shown-of-nobody; os_name == 'posix'", "felt; os_name == 'nt'"]
    """)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(): import seen_of_nobody

        @pytest.mark.gpu
        def test_two(): import shown_of_nobody
    """)
    head = "note: declared but not installed there: seen-of-nobody, shown-of-nobody "
    text = said(run(pytester, MODAL))
    way = "set remotegpu_requirements to the line 'pyproject.toml[test, vision]'"
    assert f"{head}(pyproject.toml[vision]); {way}\n" in text
    assert text.count("declared but not installed") == 1

    pytester.makeini(
        "[pytest]\nremotegpu_requirements =\n    pip: pytest\n    pyproject.toml[vision]\n"
    )
    text = said(run(pytester, MODAL))
    assert f"{head}(pyproject.toml[vision]); remotegpu_requirements asks for that already" in text
    assert len(service.deploys) == 2


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_what_is_declared_beside_the_files_that_are_named_is_added_to_them(
    pytester: pytest.Pytester, service: LoopbackModal, processes: str
) -> None:
    pytester.makefile(".txt", requirements="pytest\n", **{"requirements-dev": "seen-of-nobody\n"})
    pytester.makefile(".txt", **{"requirements-test": "pytest\n"})
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(4))
        def test_one(number): import seen_of_nobody
    """)
    text = said(run(pytester, MODAL, processes))
    assert (
        "note: declared but not installed there: seen-of-nobody (requirements-dev.txt); set "
        "remotegpu_requirements to the lines 'requirements.txt', 'requirements-test.txt', "
        "'requirements-dev.txt'\n"
    ) in text
    assert text.count("declared but not installed") == 1
    assert service.deploys
