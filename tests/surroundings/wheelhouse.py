"""Wheels of what is installed here, so that other tools can make environments without any index.

Knows the metadata of installed packages, and the format of wheels.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["build", "needed"]

OWN_OF_HERE = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")


def needed(*names: str) -> dict[str, Distribution]:
    """Give these packages and all that they need to be installed, without extras."""
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found[name] = distribution(name)
            lines = filter(_holds, found[name].requires or ())
            left += [Requirement(line).name for line in lines]
    return found


def _holds(line: str) -> bool:
    """Say whether a requirement holds on this machine, without extras."""
    marker = Requirement(line).marker
    return marker is None or marker.evaluate({"extra": ""})


def build(folder: Path, *names: str) -> Path:
    """Write a wheel of each of these packages and of what they need on this machine.

    What they need elsewhere is left out of them: a tool that locks for all machines asks for it.
    An editable install becomes a wheel that leads to the same folder.

    :return: the folder, which need not exist.
    """
    folder.mkdir(exist_ok=True)
    for found in needed(*names).values():
        _write(found, folder)
    return folder


def _write(found: Distribution, folder: Path) -> None:
    stem = f"{found.name.replace('-', '_')}-{found.version}"
    path = folder / f"{stem}-{_tag(found)}.whl"
    lines = []
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in _contents(found):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}")
            wheel.writestr(name, content)
        (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
        record = f"{info}/RECORD"
        wheel.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")


def _contents(found: Distribution) -> Iterator[tuple[str, bytes]]:
    """Give the files that lie among the packages, not those of its commands."""
    for file in found.files or ():
        own = file.name in OWN_OF_HERE and ".dist-info" in file.parts[0]
        if file.parts[0] != ".." and file.suffix != ".pyc" and not own:
            content = Path(str(file.locate())).read_bytes()
            is_metadata = file.name == "METADATA" and ".dist-info" in file.parts[0]
            yield file.as_posix(), _of_here(content) if is_metadata else content


def _of_here(metadata: bytes) -> bytes:
    """Leave out what is needed on other machines only."""
    head = "Requires-Dist: "
    lines = metadata.decode().split("\n")
    kept = [x for x in lines if not x.startswith(head) or _holds(x.removeprefix(head))]
    return "\n".join(kept).encode()


def _tag(found: Distribution) -> str:
    """Name the tags of a wheel as they stand in its file's name."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2].split("-") for line in lines if line.startswith("Tag: ")]
    return "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
