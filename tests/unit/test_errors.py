"""The exceptions: what is caught together, so that an exit status follows from the class."""

from __future__ import annotations

import pytest

from pytest_remotegpu import errors


@pytest.mark.parametrize("name", errors.__all__)
def test_each_is_one_of_ours_and_says_when_it_is_raised(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.RemoteGpuError)
    assert kind is errors.RemoteGpuError or kind.__doc__.startswith("Raised when")


@pytest.mark.parametrize("kind", [errors.SpecError, errors.MarkerError])
def test_what_the_user_wrote_wrong_is_a_usage_error(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.UsageError)


@pytest.mark.parametrize("kind", [errors.ProtocolError, errors.FarSideError])
def test_what_the_far_side_did_wrong_is_none(kind: type[Exception]) -> None:
    assert not issubclass(kind, errors.UsageError)
