"""Payloads that are too large for a message: PUT and GET over HTTP, as from an object store."""

import base64
import hashlib

from aiohttp import web
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .state import World
from .wire import Caller, Message, rpc

LARGEST = 1 << 30


class Blobs:
    """The HTTP server, and the two RPCs that hand out its addresses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._expected: dict[str, Message] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a port of its own."""
        app = web.Application(client_max_size=LARGEST)
        app.router.add_put("/{blob}", self._put)
        app.router.add_get("/{blob}", self._get)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _put(self, request: web.Request) -> web.Response:
        blob = request.match_info["blob"]
        body = await request.read()
        expected = self._expected.get(blob)
        if expected is None or not _matches(expected, body):
            return web.Response(status=400, text=f"{blob}: not the content that was announced")
        self._world.blobs[blob] = body
        return web.Response(headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})  # noqa: S324

    async def _get(self, request: web.Request) -> web.Response:
        body = self._world.blobs.get(request.match_info["blob"])
        return web.Response(status=404) if body is None else web.Response(body=body)

    @rpc
    async def blob_create(self, request: Message, _: Caller) -> Message:
        id = self._world.id("bl")
        self._expected[id] = request
        urls = api_pb2.UploadUrlList(items=[f"{self.url}/{id}"])
        return api_pb2.BlobCreateResponse(blob_id=id, blob_ids=[id], upload_urls=urls)

    @rpc
    async def blob_get(self, request: Message, _: Caller) -> Message:
        if request.blob_id not in self._world.blobs:
            raise GRPCError(Status.NOT_FOUND, f"blob {request.blob_id!r} not found")
        return api_pb2.BlobGetResponse(download_url=f"{self.url}/{request.blob_id}")


def _matches(announced: Message, body: bytes) -> bool:
    sha256 = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return len(body) == announced.content_length and announced.content_sha256_base64 in {"", sha256}
