"""A hub of Hugging Face on loopback, as far as its own client and `datasets` ask one for datasets."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Serves the folders `root/ORG/NAME` as datasets of one commit. asked: what was requested."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, list[str]()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:
                """do_GET, do_HEAD and do_POST are the same."""
                if name.startswith("do_"):
                    return lambda: hub.answer(self)
                raise AttributeError(name)

            def log_message(self, *what: Any) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.asked.append(f"{request.command} {path}")
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "datasets"] and (self.root / "/".join(parts[2:4])).is_dir():
            return self._api(request, "/".join(parts[2:4]), parts[4:], body)
        if parts[:1] == ["datasets"] and parts[3:4] == ["resolve"]:
            return self._file(request, self.root / "/".join(parts[1:3]) / "/".join(parts[5:]))
        return _send(request, 404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})

    def _api(self, request: BaseHTTPRequestHandler, name: str, rest: list[str], body: bytes) -> None:
        folder = self.root / name
        if rest[:1] in ([], ["revision"]):
            if rest and rest[1] not in ("main", COMMIT):
                return _send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            siblings = [{"rfilename": entry["path"]} for entry in _entries(folder) if entry["type"] == "file"]
            found = {
                "id": name, "sha": COMMIT, "siblings": siblings, "private": False, "disabled": False,
                "downloads": 0, "likes": 0, "tags": [], "gated": False,
            }  # fmt: skip
            return _send(request, 200, json.dumps(found).encode())
        if rest[0] == "tree":
            inside = "/".join(rest[2:])
            start = folder / inside
            if not start.is_dir():
                return _send(request, 404, b"{}", {"X-Error-Code": "EntryNotFound"})
            deep = "recursive=True" in request.path or "recursive=true" in request.path
            entries = [
                entry for entry in _entries(folder) if _is_below(str(entry["path"]), inside, deep=deep)
            ]
            return _send(request, 200, json.dumps(entries).encode())
        if rest[0] == "paths-info":
            wanted = _paths_of(body)
            entries = [entry for entry in _entries(folder) if entry["path"] in wanted]
            return _send(request, 200, json.dumps(entries).encode())
        return _send(request, 404, b"{}")

    def _file(self, request: BaseHTTPRequestHandler, path: Path) -> None:
        if not path.is_file():
            return _send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
        data = path.read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes",
        }  # fmt: skip
        wanted = request.headers.get("Range")
        if not wanted:
            return _send(request, 200, data, headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return _send(request, 206, data[start:stop], headers)


def _entries(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        oid = hashlib.sha1(inside.encode()).hexdigest()
        size = path.stat().st_size if path.is_file() else 0
        found.append(
            {"type": "file" if path.is_file() else "directory", "oid": oid, "size": size, "path": inside}
        )
    return found


def _is_below(path: str, folder: str, *, deep: bool) -> bool:
    prefix = f"{folder}/" if folder else ""
    return path.startswith(prefix) and (deep or "/" not in path[len(prefix) :])


def _paths_of(body: bytes) -> set[str]:
    from urllib.parse import parse_qs

    try:
        found = json.loads(body)["paths"]
    except ValueError:
        found = parse_qs(body.decode())["paths"]
    return {found} if isinstance(found, str) else set(found)


def _send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


@contextmanager
def hub_server(root: Path) -> Iterator[HubServer]:
    """The server, while the block runs."""
    server = HubServer(root)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
