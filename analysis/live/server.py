"""The server of the live page, on 127.0.0.1 only, with a token in its address.

All users of a login node can reach its 127.0.0.1, so an address without the token is answered with 403. No
path names a file: the server has the page and its state, nothing else.
"""

from __future__ import annotations

import gzip
import hmac
import json
import secrets
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from analysis.live.follower import Follower
from experiment_utils.errors import UserError

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_SLOW_S = 30.0
_TOKEN_BYTES = 24
_WORTH_PACKING_BYTES = 2048


class Server(ThreadingHTTPServer):
    """A server for one study. port 0: any free port."""

    daemon_threads = True

    def __init__(self, follower: Follower, port: int = 0, token: str | None = None) -> None:
        self.follower = follower
        self.token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            super().__init__((HOST, port), _Request)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"--port {port}: {why}; leave it out to use any free port", code="port-not-free"
            ) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"


class _Request(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.0"  # a connection an answer: a page that is left open holds no thread
    timeout = _SLOW_S

    def do_GET(self) -> None:
        try:
            self._answer(*self._found())
        except (BrokenPipeError, ConnectionResetError, TimeoutError):  # the reader went away
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815 - the base class decides the name

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is the user's."""

    def _found(self) -> tuple[HTTPStatus, str, str]:
        """(status, type, body) of the answer."""
        plain = "text/plain; charset=utf-8"
        asked = urllib.parse.urlsplit(self.path)
        _, _, rest = asked.path.partition("/")
        token, _, what = rest.partition("/")
        name = (self.headers.get("Host") or HOST).rpartition(":")[0] or self.headers.get("Host") or HOST
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not is_known or name not in _NAMES:
            return (
                HTTPStatus.FORBIDDEN,
                plain,
                "the address lacks the token: use the whole one that was printed\n",
            )
        try:
            if what == "" and asked.path.endswith("/"):
                return HTTPStatus.OK, "text/html; charset=utf-8", self.server.follower.html()
            if what == "state":
                since = urllib.parse.parse_qs(asked.query).get("since", ["0"])[0]
                self.server.follower.refresh()
                state = self.server.follower.changes(int(since) if since.isdecimal() else 0)
                return HTTPStatus.OK, "application/json", json.dumps(state, allow_nan=False)
        except UserError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, plain, error.render() + "\n"
        return HTTPStatus.NOT_FOUND, plain, "no such page\n"

    def _answer(self, status: HTTPStatus, kind: str, body: str) -> None:
        data = body.encode("utf-8", "replace")
        is_packed = len(data) > _WORTH_PACKING_BYTES and "gzip" in (self.headers.get("Accept-Encoding") or "")
        if is_packed:
            data = gzip.compress(data, compresslevel=1, mtime=0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        for name, value in (
            ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY"),
            ("X-Content-Type-Options", "nosniff"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
