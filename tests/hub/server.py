"""The interface over HTTP: strict about what it gets, and out of order where a test wants that."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hub.routes import ROUTES, Listed, only
from hub.state import REPOSITORY, Refused, Repository

TOKEN = "t0ken-of-the-job"  # noqa: S105 -- the server here wants to see it
HEADERS = {
    "Accept": r"application/vnd\.github\+json",
    "User-Agent": r"pytest-remotegpu",
    "X-GitHub-Api-Version": r"2022-11-28",
}
QUERY = {"per_page", "page", "ref", "state", "head", "base"}


@dataclass
class Fault:
    """Something that goes wrong with requests.

    :ivar what: a pattern for the method and the path. :ivar times: how often.
    :ivar status: of the answer; 0 for a connection that is closed without one.
    :ivar done: whether what was asked for is done all the same.
    """

    what: str
    status: int
    times: int = 1
    done: bool = False
    body: bytes = b'{"message": "Server Error"}'
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Hub:
    """The server.

    :ivar asked: method and path of each request, in order.
    :ivar complaints: of what no client of GitHub's would send.
    :ivar meeting: requests that wait for each other: a pattern, and the barrier that they pass.
    """

    repo: Repository = field(default_factory=Repository)
    url: str = ""
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    meeting: tuple[str, threading.Barrier] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_for(self, what: str) -> Fault | None:
        """Take the next fault for a request."""
        for fault in self.faults:
            if fault.times and re.search(fault.what, what):
                fault.times -= 1
                return fault
        return None

    def writes(self) -> list[str]:
        """List what was asked for that changes something."""
        return [each for each in self.asked if not each.startswith("GET ")]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def answer(self) -> None:
        """Answer any method."""
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path).removeprefix(f"/repos/{REPOSITORY}/")
        query = dict(urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = f"{self.command} {path}"
        with self.hub.lock:
            self.hub.asked.append(what)
            fault = self.hub.fault_for(what)
            if fault and not fault.done:
                status, headers, said = fault.status, dict(fault.headers), fault.body
            else:
                status, headers, said = self.do(what, path, query, body)
                if fault:
                    status, headers, said = fault.status, dict(fault.headers), fault.body
        self.meet(what)
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(said))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer  # noqa: N815 -- http.server's names

    def meet(self, what: str) -> None:
        """Wait with the answer for the others, where all are to have seen the same."""
        meeting = self.hub.meeting
        if meeting and re.fullmatch(meeting[0], what) and not meeting[1].broken:
            meeting[1].wait(30)
            self.hub.meeting = None

    def do(self, what: str, path: str, query: dict[str, str], body: bytes) -> Any:
        """Give status, headers and body."""
        try:
            self.check(what, query, body)
            made = self.routed(path, query, json.loads(body) if body else None)
        except Refused as error:
            return error.status, {}, json.dumps(error.told).encode()
        if made is None:
            return 204, {}, b""
        if isinstance(made, Listed):
            return self.page(made.rows, query)
        return (201 if self.command == "POST" else 200), {}, json.dumps(made).encode()

    def check(self, what: str, query: dict[str, str], body: bytes) -> None:
        """Complain of a request that is not as it has to be."""
        wrong = [
            name
            for name, pattern in HEADERS.items()
            if not re.fullmatch(pattern, self.headers.get(name, ""))
        ]
        wrong += sorted(set(query) - QUERY)
        if bool(body) is not (self.command in ("POST", "PATCH")):
            wrong.append("the body")
        if body and self.headers.get("Content-Type") != "application/json":
            wrong.append("Content-Type")
        if wrong:
            self.hub.complaints.append(f"{what}: {wrong}")
            raise Refused(400, "Bad Request")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "Bad credentials")

    def routed(self, path: str, query: dict[str, str], told: Any) -> Any:
        """Find who answers."""
        for method, pattern, function in ROUTES:
            found = pattern.fullmatch(path)
            if found and method == self.command:
                given = found.groupdict()
                names = function.__code__.co_varnames[: function.__code__.co_argcount]
                more = {"query": query, "told": told}
                given |= {name: more[name] for name in names if name in more}
                return function(self.hub.repo, **given)
        self.hub.complaints.append(f"{self.command} {self.path}: there is no such thing")
        raise Refused(404, "Not Found")

    def page(self, rows: list[Any], query: dict[str, str]) -> Any:
        """Give a page of a list, and say where the next one is."""
        size, number = int(query.get("per_page", 30)), int(query.get("page", 1))
        if not 0 < size <= 100:
            self.hub.complaints.append(f"per_page is {size}")
        shown = rows[size * (number - 1) : size * number]
        more = {} if size * number >= len(rows) else {"Link": f'<{self.path}&n=1>; rel="next"'}
        return 200, more, json.dumps(shown).encode()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serve() -> Iterator[Hub]:
    """Serve an empty repository."""
    hub = Hub()
    handler = type("Bound", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


__all__ = ["TOKEN", "Fault", "Hub", "only", "serve"]
