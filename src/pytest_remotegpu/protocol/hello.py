"""The first frame of either side: who speaks, in a form that every version can read.

A hello is JSON text, whatever becomes of the rest of the wire, so that two versions that share
nothing else can still tell each other so.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict

from pytest_remotegpu.errors import ProtocolError

__all__ = ["PROTOCOL", "Hello", "differences"]

PROTOCOL: Final = 7
"""Counts changes of the wire format; apart from the package's version."""


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


class Hello(Struct, frozen=True):
    """What a side is made of.

    :ivar protocol: the wire format's number.
    :ivar package: the version of pytest-remotegpu.
    :ivar python: major and minor version, such as ``3.12``.
    :ivar pytest: the full version of pytest; empty where it is not installed.
    :ivar gpus: the devices that the host shows, as tokens for ``CUDA_VISIBLE_DEVICES``.
    :ivar pretend: the number of pretend GPUs; ``None`` on a host that pretends nothing.
    :ivar host: the host's name.
    :ivar executable: the interpreter's path.
    """

    protocol: int = PROTOCOL
    package: str = ""
    python: str = ""
    pytest: str = ""
    gpus: tuple[str, ...] = ()
    pretend: int | None = None
    host: str = ""
    executable: str = ""
    platform: str = sys.platform
    extra: dict[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, **known: Any) -> Hello:
        """Describe this process."""
        return cls(
            package=_installed("pytest-remotegpu"),
            python=f"{sys.version_info[0]}.{sys.version_info[1]}",
            pytest=_installed("pytest"),
            executable=sys.executable,
            **known,
        )

    def encode(self) -> bytes:
        """Give the body of the hello frame."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Read the body of a hello frame; fields unknown to this version are left out.

        :raises ProtocolError: where it is none.
        """
        try:
            data = _object(json.loads(body))
            known = {key: data[key] for key in cls.__struct_fields__ if key in data}
            known["gpus"] = tuple(known.get("gpus", ()))
            known.setdefault("extra", {})
            return cls._checked(cls(**known))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ProtocolError(f"not a hello: {body[:60]!r} ({error})") from None

    @staticmethod
    def _checked(hello: Hello) -> Hello:
        texts = (hello.package, hello.python, hello.pytest, hello.host, hello.executable)
        if not isinstance(hello.extra, dict):
            raise TypeError("extra that is no object")
        more = (hello.platform, *hello.gpus, *hello.extra, *hello.extra.values())
        if not all(isinstance(text, str) for text in (*texts, *more)):
            raise TypeError("a version that is no text")
        if type(hello.protocol) is not int or type(hello.pretend) not in (int, type(None)):
            raise TypeError("a number that is none")
        return hello


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("no object")
    return data


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def differences(here: Hello, there: Hello) -> list[str]:
    """Say what keeps two sides from working together, each with its way out.

    :return: one text for each; empty where nothing does.
    """
    found = []
    python = there.executable or "python"
    if here.protocol != there.protocol:
        found.append(
            f"the far side speaks protocol {there.protocol} (pytest-remotegpu {there.package}), "
            f"this side {here.protocol} (pytest-remotegpu {here.package}): "
            f"{python} -m pip install pytest-remotegpu=={here.package}"
        )
    if here.python != there.python:
        found.append(
            f"the far Python is {there.python} ({python}), this one is {here.python}; they must "
            f"share the minor version: name an interpreter of Python {here.python} with the ini "
            "option remotegpu_python"
        )
    if not there.pytest:
        found.append(f"the far side has no pytest: {python} -m pip install pytest=={here.pytest}")
    elif _minor(here.pytest) != _minor(there.pytest):
        found.append(
            f"the far pytest is {there.pytest}, this one is {here.pytest}; they must share major "
            f"and minor: {python} -m pip install pytest=={here.pytest}"
        )
    return found
