"""The hooks that other plugins and conftests may implement to take part in shipping tests.

Says what they are given, and must not know who calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_remotegpu.reports import Result
    from pytest_remotegpu.summary import RunSummary


@pytest.hookspec
def pytest_remotegpu_environment(config: pytest.Config, environment: dict[str, str]) -> None:
    """Change the environment variables that the shipped tests get, in place.

    Called once, before the first worker starts. For a worker on this host ``environment`` is the
    whole environment; for one elsewhere it holds what is passed on.

    :param environment: names and values.
    """


@pytest.hookspec(firstresult=True)
def pytest_remotegpu_modal_image(config: pytest.Config, image: Any) -> Any:
    """Add to the image that Modal builds, after all that the project's files ask for.

    Called once, before the first worker starts. ``image`` records what is done to it, and that is
    part of what makes an environment another one; Modal's SDK is not needed here.

    :param image: has the methods of ``modal.Image`` that add something: ``apt_install``,
        ``pip_install``, ``uv_pip_install``, ``micromamba_install``, ``run_commands``,
        ``dockerfile_commands``, ``env``, ``workdir``, ``add_local_file`` and ``add_local_dir``.
        They take texts, numbers, lists and dictionaries; secrets are named.
    :return: what the last of these methods gave. The first answer that is not ``None`` counts.
    """


@pytest.hookspec
def pytest_remotegpu_order(config: pytest.Config, order: dict[str, Any]) -> None:
    """Change an order before it is sent, in place. Called once for each worker.

    :param order: ``args`` (list of str, the far session's command line), ``variables`` (dict of
        str), ``gpus`` (int), ``ids`` (tuple of str, for reading only).
    """


@pytest.hookspec
def pytest_remotegpu_result(item: pytest.Item, result: Result) -> None:
    """See what came back for one test, before its reports are shown.

    :param result: the worker, the GPUs and the reports, which may still be changed.
    """


@pytest.hookspec
def pytest_remotegpu_summary(config: pytest.Config, summary: RunSummary) -> None:
    """See, or add to, the summary of the far side before it is printed."""
