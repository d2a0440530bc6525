import allure
import pytest


@allure.feature("feature")
@allure.story("story")
@allure.title("a title")
def test_steps():
    """A description."""
    with allure.step("first"):
        allure.attach("text of it", name="attached", attachment_type=allure.attachment_type.TEXT)
    with allure.step("second"):
        print("printed")


@pytest.fixture
def thing():
    yield 1


@allure.severity(allure.severity_level.CRITICAL)
@pytest.mark.parametrize("n", [1, 2])
def test_fails(n, thing):
    assert n == 1


@pytest.mark.skip(reason="not now")
def test_skipped():
    pass


@pytest.mark.xfail(reason="known")
def test_known():
    assert False
