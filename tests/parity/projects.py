"""The projects of the corpus that are run plainly and otherwise, and compared.

Each is a folder below `corpus/`; how a project is called is said here, how it is shipped is not.
"""

from __future__ import annotations

from .running import Project

PACKED = ("-p", "no:timeout")

PROJECTS: tuple[Project, ...] = (
    Project("outcomes"),
    Project("output"),
    Project("warned"),
    Project("params"),
    Project("scopes"),
    Project("styles"),
    Project(
        "layout",
        args=(
            *("tests", "gpu", "sub", "ns"),
            *("--site=lab", "--mode", "fast", "--size=7", "-o", "answer=43"),
            *("-p", "no:timeout", "-W", "ignore::ResourceWarning"),
        ),
    ),
    Project(
        "spread",
        args=("-c", "../configs/ci.ini", "--rootdir=..", "--plugin-says=hello world", "a", "b"),
        cwd="work",
        environment={"PYTEST_ADDOPTS": "--tb=short -p named_plugin -p no:cacheprovider"},
    ),
    Project("hooks", args=("--hush",)),
    Project("broken", args=("--continue-on-collection-errors",)),
    Project("choices"),
    Project("packed", args=(*PACKED, "checks", "src")),
    Project("packed, append", args=(*PACKED, "--import-mode=append"), source="packed"),
    Project("packed, importlib", args=(*PACKED, "--import-mode=importlib"), source="packed"),
    Project(
        "packed, by name",
        args=(*PACKED, "--pyargs", "packed.tests", "checks", "src/space"),
        source="packed",
    ),
    Project(
        "packed, from elsewhere",
        args=(*PACKED, "--rootdir=..", "-c", "../pytest.ini", "packed", "../checks"),
        cwd="src",
        source="packed",
    ),
)
