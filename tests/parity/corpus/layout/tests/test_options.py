"""Options reach the far side as they are here."""

import libpack
import pytest
from conftest import HELPER

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@both
def test_required(side, pytestconfig):
    assert pytestconfig.getoption("site") == "lab"
    assert pytestconfig.getoption("--mode") == "fast"


@both
def test_set_by_code(side, pytestconfig):
    assert pytestconfig.getoption("base") == "http://made.up"
    assert pytestconfig.option.late == ("set", "while configuring")


@both
def test_ini(side, pytestconfig):
    assert pytestconfig.getini("answer") == "43"
    assert pytestconfig.inipath.name == "pytest.ini"


@both
def test_conftest_option_below(side, pytestconfig):
    assert pytestconfig.getoption("size") == 7


@both
def test_imports(side, seven):
    assert HELPER == "from the root"
    assert (libpack.NAME, seven) == ("libpack", 7)
    assert __name__ == "tests.test_options"


@both
def test_assertion_in_plugin_module(side, eight_expected):
    pass


@both
@pytest.mark.late
def test_late_marker(side, level):
    assert level == "root"


@both
def test_blocked_plugin(side, pytestconfig):
    assert not pytestconfig.pluginmanager.hasplugin("timeout")


@both
def test_warning_filter_of_command_line(side):
    import warnings

    warnings.warn("unwanted", ResourceWarning, stacklevel=1)
