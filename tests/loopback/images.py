"""Images: each is the interpreter of the service, or a virtual environment of its own."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from modal_proto import api_pb2

from .apps import BUILDER
from .objects import held
from .state import World, digest
from .wire import Caller, Message, rpc

SUCCESS = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS


@dataclass
class Built:
    """What an image is here."""

    python: Path
    environ: dict[str, str] = field(default_factory=dict)
    workdir: str = "/root"


class Images:
    """Rooms for `Image...`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._built: dict[str, Built] = {}

    def built(self, id: str) -> Built:
        """Return what was built for an image."""
        return self._built.get(id) or Built(Path(sys.executable))

    @rpc
    async def image_get_or_create(self, request: Message, _: Caller) -> Message:
        id = "im-" + digest(request.image.SerializeToString(deterministic=True))
        self._world.images[id] = request.image
        self._built[id] = Built(Path(sys.executable))
        return api_pb2.ImageGetOrCreateResponse(
            image_id=id,
            result=api_pb2.GenericResult(status=SUCCESS),
            metadata=self._metadata(),
        )

    @rpc
    async def image_from_id(self, request: Message, _: Caller) -> Message:
        held(self._world.images, request.image_id)
        return api_pb2.ImageFromIdResponse(image_id=request.image_id, metadata=self._metadata())

    def _metadata(self) -> Message:
        version = ".".join(map(str, sys.version_info[:3]))
        return api_pb2.ImageMetadata(
            python_version_info=f"Python {version}", image_builder_version=BUILDER
        )
