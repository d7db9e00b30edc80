"""A web server for delivery tests: it serves the site and the Pyodide harness, and misbehaves where it is told to.

A behaviour is a function of the request handler that writes the whole answer.
"""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tooling import csp

_HERE = Path(__file__).parent
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
}
_BINARY = "application/octet-stream"


class FaultyServer:
    """Serves from its own port for as long as the block lasts.

    `answers` maps a path to a behaviour, or to a list of them, one for each request (the last one stays). `asked`
    collects (path, Range header or None) of every request to those paths. A request of `seen` ends the behaviour
    `cut`; `hung_up` is set when the browser leaves `stall`. Without `policy` no Content-Security-Policy is sent.
    """

    def __init__(self, site, *, policy=True):
        self.policy = csp.header() if policy else ""
        self._folders = (site, _HERE)
        self.answers = {}
        self.asked = []
        self.seen = threading.Event()
        self.hung_up = threading.Event()

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.origin = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.origin}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self.seen.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler):
        path = handler.path.partition("?")[0].removeprefix("/")
        if path in self.answers:
            self.asked.append((path, handler.headers["Range"]))
            behaviour = self.answers[path]
            if isinstance(behaviour, list):
                behaviour = behaviour.pop(0) if len(behaviour) > 1 else behaviour[0]
            behaviour(handler)
        elif path == "seen":
            self.seen.set()
            status(200)(handler)
        else:
            self._send_file(handler, path)

    def _send_file(self, handler, path):
        file = next((folder / path for folder in self._folders if (folder / path).is_file()), None)
        if file is None:
            status(404)(handler)
        else:
            send(handler, file.read_bytes(), kind=_TYPES.get(file.suffix, _BINARY))


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, faulty, *details):
        self.faulty = faulty
        super().__init__(*details)

    def log_message(self, *_details):
        pass

    def do_GET(self):
        with contextlib.suppress(ConnectionError):  # the browser hangs up when it has seen enough
            self.faulty.answer(self)


def send(handler, data, *, code=200, kind=_BINARY, length=None, headers=()):
    """Answer with `data`; `length` is the Content-Length to claim, "" for none."""
    handler.send_response(code)
    length = len(data) if length is None else length
    fields = {"Content-Type": kind, "Content-Length": length, "Content-Security-Policy": handler.faulty.policy}
    for name, value in {**fields, **dict(headers)}.items():
        if value != "":
            handler.send_header(name, str(value))
    handler.end_headers()
    handler.wfile.write(data)


def serve(data, **details):
    """The file, or the part of it that is asked for."""

    def behaviour(handler):
        asked = handler.headers["Range"]
        if asked is None:
            send(handler, data, **details)
            return
        first, last = map(int, asked.removeprefix("bytes=").split("-"))
        part = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        send(handler, data[first : last + 1], code=206, headers=part, **details)

    return behaviour


def ignore_ranges(data, **details):
    """The whole file, whatever part is asked for."""
    return lambda handler: send(handler, data, **details)


def cut(data, length):
    """The connection ends after `length` bytes of a longer answer, once the lab has said that it has seen them."""

    def behaviour(handler):
        handler.faulty.seen.clear()
        send(handler, data[:length], length=len(data))
        handler.wfile.flush()
        handler.faulty.seen.wait()
        handler.close_connection = True

    return behaviour


def stall(data, length):
    """Nothing comes after `length` bytes, until the browser hangs up."""

    def behaviour(handler):
        handler.faulty.hung_up.clear()
        send(handler, data[:length], length=len(data))
        with contextlib.suppress(ConnectionError):
            handler.rfile.read(1)
        handler.faulty.hung_up.set()

    return behaviour


def status(code):
    """An error, in plain text."""
    return lambda handler: send(handler, b"no", code=code, kind="text/plain")


def redirect(url):
    """It is elsewhere, and every page may know."""
    headers = {"Location": url, "Access-Control-Allow-Origin": "*"}
    return lambda handler: send(handler, b"", code=302, headers=headers)


def hang_up(handler):
    """The connection ends without an answer."""
    handler.close_connection = True
