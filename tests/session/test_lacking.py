"""A package that the far side lacks is named, with its interpreter and the way to get it."""

from __future__ import annotations

import sys

import pytest

from session.running import run, said

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
LACKS = f"host lacks: httpx_not_in_image ({sys.executable})"
WAY = f"on the far side: {sys.executable} -m pip install not-in-image==1.5"


@pytest.fixture
def far(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Have a package installed here that the far side lacks."""
    site = pytester.path.parent / f"{pytester.path.name}-lib" / "site-packages"
    metadata = site / "not_in_image-1.5.dist-info"
    metadata.mkdir(parents=True)
    (site / "httpx_not_in_image.py").write_text("VALUE = 1\n", encoding="utf-8")
    (metadata / "METADATA").write_text("Name: not-in-image\nVersion: 1.5+cpu\n", encoding="utf-8")
    (metadata / "top_level.txt").write_text("httpx_not_in_image\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    return pytester


def test_of_a_file_that_can_not_be_imported(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import httpx_not_in_image as m
        import pytest

        @pytest.mark.gpu
        def test_m(): assert m
    """)
    text = said(run(far, FAR))
    assert LACKS in text
    assert WAY in text


def test_of_a_file_that_is_collected_there(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import httpx_not_in_image as m
        import pytest

        @pytest.mark.gpu
        def test_m(): assert m
    """)
    text = said(run(far, FAR, "-o", "remotegpu_collect=far"))
    assert LACKS in text
    assert WAY in text


def test_of_a_test_and_its_conftest(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_in_it():
            import httpx_not_in_image

        @pytest.mark.gpu
        def test_nowhere():
            import of_nobody_at_all

        @pytest.mark.gpu
        def test_of_python():
            raise ModuleNotFoundError("No module named '_tkinter'")

        @pytest.mark.gpu
        def test_of_the_project():
            raise ModuleNotFoundError("No module named 'mine'")
    """)
    far.mkdir("mine")
    text = said(run(far, FAR))
    assert text.count("host lacks") == 2
    assert LACKS in text
    assert WAY in text
    assert (
        f"{sys.executable} -m pip install PACKAGE (PACKAGE is what brings of_nobody_at_all" in text
    )

    far.makeconftest("import httpx_not_in_image")
    text = said(run(far, FAR))
    assert LACKS in text
    assert WAY in text


def test_nothing_is_said_where_nothing_is_lacking_there_alone(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_nowhere():
            import of_nobody_at_all
    """)
    assert "host lacks" not in said(run(far, "--remote=local:cpu"))


def test_of_a_build_that_does_not_fit(pytester: pytest.Pytester) -> None:
    site = pytester.path.parent / f"{pytester.path.name}-far"
    for name, version in (("torch", "2.6.0+cu126"), ("flash_attn", "2.7.4")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.makepyfile("""
        import os
        import pytest

        if "REMOTEGPU_WORKER" in os.environ:
            raise ImportError("flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E")

        @pytest.mark.gpu
        def test_import_fa(): pass
    """)
    far = f"--remote=command:env -C / PYTHONPATH={site} PYTEST_REMOTEGPU_PRETEND_GPUS=1"
    text = said(run(pytester, far))
    assert "undefined symbol: _ZN3c105ErrorC2E" in text
    assert "the far side has torch 2.6.0+cu126" in text
    assert "flash-attn 2.7.4" in text
