"""HTTP proxy on loopback that spoils answers, as networks and stores do to a download."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Request"], str | tuple[int, bytes] | None]


@dataclass(frozen=True)
class Request:
    """attempt: number of times that this request was made, the first is 1."""

    method: str
    path: str
    range: str | None
    attempt: int


@dataclass
class FaultyProxy:
    """Proxy of an S3 server.

    backend: port of the server. fault: 500, reset, slow, truncated, short or wrong; an answer (status, body)
    instead of the server's; or None.
    """

    backend: int
    fault: Fault = lambda request: None
    requests: list[Request] = field(default_factory=list)
    sent_bytes: int = 0

    def __enter__(self) -> FaultyProxy:
        proxy = self
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

            def _any(self) -> None:
                proxy._answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True, args=(0.02,)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def gets(self, end: str) -> list[Request]:
        """The requests for the content of objects whose name ends so."""
        return [r for r in self.requests if r.method == "GET" and r.path.partition("?")[0].endswith(end)]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        asked = (handler.command, handler.path, handler.headers.get("Range"))
        with self._lock:
            attempt = 1 + sum((r.method, r.path, r.range) == asked for r in self.requests)
            request = Request(*asked, attempt)
            self.requests.append(request)
        fault = self.fault(request)
        fault = (500, b"") if fault == "500" else fault
        if isinstance(fault, tuple):
            self._send(handler, fault[0], {"Content-Length": str(len(fault[1]))}, fault[1])
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.backend, timeout=240)
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        sent = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        if handler.command != "HEAD":
            sent["Content-Length"] = str(len(data))
        self._spoilt(handler, answer.status, sent, data, fault)

    def _spoilt(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        data: bytes,
        fault: str | None,
    ) -> None:
        half = len(data) // 2
        if fault == "wrong" and data:
            data = data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
        if fault == "short":
            headers, data = {**headers, "Content-Length": str(half)}, data[:half]
        if fault not in ("reset", "slow", "truncated"):
            self._send(handler, status, headers, data)
            return
        self._send(handler, status, headers, data[:half])
        handler.wfile.flush()
        if fault == "slow":
            time.sleep(0.3)
            handler.wfile.write(data[half:])
            return
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR) if fault == "truncated" else handler.connection.close()

    def _send(
        self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes
    ) -> None:
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
            with self._lock:
                self.sent_bytes += len(data)


_HOP = ("connection", "transfer-encoding", "content-length")
