"""The static server: the site with the headers that cross-origin isolation, safety and caching need.

It streams files (ranges too), never leaves the site's folder, and answers a missing file with a short text. One model
from elsewhere can be served as the site's default seed, in place of the embedded one. Nothing is built here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from asyncio import Future
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler

from tooling import csp
from tooling.console import ToolingError, human_size
from tooling.seed import Seed

DEFAULT_PORT = 8000
_PORTS_TRIED = 20

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".gguf": "application/octet-stream",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".py": "text/x-python; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".whl": "application/zip",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
_HASHED = re.compile(r"/[0-9a-f]{64}/")  # an address with its content's hash in it never changes
_READ = 1 << 20


@dataclass(frozen=True)
class Request:
    """One request, as told to `on_request` when its answer begins."""

    method: str
    path: str
    status: int
    size: int

    def __str__(self) -> str:
        return f"{self.status} {self.method} {self.path} {human_size(self.size)}"


class _Headers(RequestHandler):
    """Headers of every answer, errors too."""

    _told = False

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", csp.header())
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "no-cache")
        if self.settings["isolation"]:
            self.set_header("Cross-Origin-Opener-Policy", "same-origin")
            self.set_header("Cross-Origin-Embedder-Policy", "require-corp")

    def write_error(self, status_code: int, **_details: object) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {self._reason}: {self.request.path}\n")

    def flush(self, include_footers: bool = False) -> Future[None]:
        if not self._told:
            self._told = True
            has_body = self.request.method != "HEAD" and self.get_status() != 304
            size = int(self._headers.get("Content-Length", 0)) if has_body else 0
            request = Request(self.request.method or "", self.request.path, self.get_status(), size)
            self.settings["on_request"](request)
        return super().flush(include_footers)


class _Missing(_Headers):
    """Every address that no other handler has."""

    def prepare(self) -> None:
        raise HTTPError(404)


class _Bytes(_Headers):
    """A small answer that is in memory: a manifest."""

    def initialize(self, data: bytes) -> None:
        self._data = data

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(self._data)

    head = get


class _Files(_Headers, StaticFileHandler):
    """The files of one folder."""

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        """The file to serve; a 404 for whatever is not a plain file of the site, dot files included."""
        if any(part.startswith(".") for part in self.path.split("/")) or "\0" in self.path:
            raise HTTPError(404)
        try:
            return super().validate_absolute_path(root, absolute_path)
        except HTTPError as error:
            raise HTTPError(404) from error

    @classmethod
    def get_content(
        cls, abspath: str, start: int | None = None, end: int | None = None
    ) -> Generator[bytes, None, None]:
        """The bytes `start..end` of a file, piece by piece."""
        with Path(abspath).open("rb") as file:
            file.seek(start or 0)
            left = None if end is None else end - (start or 0)
            while data := file.read(_READ if left is None else min(_READ, left)):
                yield data
                left = None if left is None else left - len(data)

    def get_content_type(self) -> str:
        return _TYPES.get(Path(self.absolute_path or "").suffix, "application/octet-stream")

    def compute_etag(self) -> str:
        """From size and time: no file is read only to name its version."""
        status = Path(self.absolute_path or "").stat()
        return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'

    def set_extra_headers(self, path: str) -> None:  # noqa: ARG002 - tornado's signature
        if _HASHED.search(self.request.path):
            self.set_header("Cache-Control", "public, max-age=31536000, immutable")


class _OneFile(_Files):
    """A single file from outside the site; the root is the file itself."""

    @classmethod
    def get_absolute_path(cls, root: str, path: str) -> str:  # noqa: ARG003 - tornado's signature
        return root


class Server:
    """A site being served; the port is open from the start, answers begin with `run` or inside `running`.

    Args:
        site: folder of the built site.
        host: address to listen on.
        port: 0 for any free one; None for the first free one from 8000 on.
        isolation: send COOP and COEP, which give the page threads and shared memory.
        model: served as the default seed in place of the site's.
        on_request: told every request, before the first byte of its answer goes out.

    Raises:
        ToolingError: the site is not there, or the port is taken.
    """

    def __init__(
        self,
        site: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = 0,
        isolation: bool = True,
        model: Seed | None = None,
        on_request: Callable[[Request], None] = lambda request: None,
    ) -> None:
        if not (site / "index.html").is_file():
            raise ToolingError(
                f"{site}: no index.html there; build the site with `python build.py`, or name its folder"
            )
        self._application = _application(site, isolation=isolation, model=model, on_request=on_request)
        self._socket = _bind(host, port)
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}/"

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until interrupted; `on_ready` is called when requests are answered."""
        asyncio.run(self._serve(on_ready, asyncio.Event()))

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve from another thread for as long as the block lasts."""
        ready, stop, loops = threading.Event(), asyncio.Event(), []

        def on_ready() -> None:
            loops.append(asyncio.get_running_loop())
            ready.set()

        thread = threading.Thread(target=lambda: asyncio.run(self._serve(on_ready, stop)), daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loops[0].call_soon_threadsafe(stop.set)
            thread.join()

    async def _serve(self, on_ready: Callable[[], None], stop: asyncio.Event) -> None:
        server = HTTPServer(self._application)
        server.add_socket(self._socket)
        on_ready()
        try:
            await stop.wait()
        finally:
            server.stop()
            await server.close_all_connections()


def _application(
    site: Path, *, isolation: bool, model: Seed | None, on_request: Callable[[Request], None]
) -> Application:
    routes: list[tuple[str, type[RequestHandler], dict[str, Any]]] = []
    if model is not None:
        manifest = {"data": model.manifest}
        routes += [(rf"/seed/{re.escape(name)}\.json", _Bytes, manifest) for name in ("default", model.name)]
        files = model.files.items()
        routes += [(f"/seed/({re.escape(address)})", _OneFile, {"path": str(path)}) for address, path in files]
    routes.append((r"/(.*)", _Files, {"path": str(site), "default_filename": "index.html"}))

    settings: dict[str, Any] = {"isolation": isolation, "on_request": on_request}
    # tornado's own log would come after the last byte went out, too late for whoever asks what was requested.
    return Application(routes, default_handler_class=_Missing, log_function=lambda handler: None, **settings)


def _bind(host: str, port: int | None) -> socket.socket:
    candidates = range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED) if port is None else [port]
    problem = OSError("no port to try")
    for candidate in candidates:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            opened = socket.create_server((host, candidate), family=family)
        except OSError as error:
            problem = error
            continue
        opened.setblocking(False)
        return opened
    advice = "Choose another with --port, or another address with --host"
    tried = f"{candidates[0]} to {candidates[-1]}" if len(candidates) > 1 else str(candidates[0])
    raise ToolingError(
        f"{host} port {tried}: cannot listen there: {problem.strerror or problem}. {advice}"
    ) from problem
