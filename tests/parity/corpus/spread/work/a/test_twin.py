"""One of two files with the same base name and no package."""

import pytest

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@both
def test_root(side, pytestconfig):
    assert pytestconfig.rootpath.name == "spread"
    assert pytestconfig.inipath.name == "ci.ini"
    assert pytestconfig.invocation_params.dir.name == "work"


@both
def test_plugin(side, said):
    assert said == "hello world"


@both
def test_short_traceback(side, seen):
    assert seen == "nothing"


@both
@pytest.mark.xfail
def test_strict_by_ini(side):
    pass


@both
def test_no_cache(side, request):
    assert not request.config.pluginmanager.hasplugin("cacheprovider")
