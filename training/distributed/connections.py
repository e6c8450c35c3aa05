"""One idle TCP connection from every rank to rank 0, which the kernel closes when a rank's process ends.

Rank 0 then learns within a heartbeat that a rank was killed, also while all others wait inside a collective
of NCCL, which does not notice. A node that went down closes no connection; its heartbeats stop.
"""

from __future__ import annotations

import json
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from training.distributed.place import Place

if TYPE_CHECKING:
    from torch.distributed import Store

_KEY = "connections"
_TOKEN_BYTES = 16
_RANK_BYTES = 4
_CONNECT_S = 5.0


class Connections:
    """The listener and the connections of rank 0, or the connection of another rank.

    A connection that cannot be made is left out: heartbeats remain.
    """

    def __init__(self, store: Store, place: Place) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._greeting: list[socket.socket] = []
        self._listener: socket.socket | None = None
        with suppress(OSError):
            if place.is_first:
                self._token = secrets.token_bytes(_TOKEN_BYTES)
                self._listener = socket.create_server(("", 0), backlog=place.world_size)
                self._listener.setblocking(False)
                port = self._listener.getsockname()[1]
                store.set(_KEY, json.dumps({"port": port, "token": self._token.hex()}))
            else:
                found = json.loads(store.get(_KEY))
                to_first = socket.create_connection((place.address, found["port"]), timeout=_CONNECT_S)
                self._sockets[0] = to_first
                to_first.sendall(bytes.fromhex(found["token"]) + place.rank.to_bytes(_RANK_BYTES, "big"))

    def closed(self) -> list[int]:
        """Ranks whose connection to rank 0 was closed, for rank 0. Does not block."""
        self._accept()
        return sorted(rank for rank, one in self._sockets.items() if _peek(one, 1) == b"")

    def close(self) -> None:
        """Close the sockets of this rank."""
        for one in (*self._sockets.values(), *self._greeting, *([self._listener] if self._listener else [])):
            one.close()
        self._sockets, self._greeting, self._listener = {}, [], None

    def _accept(self) -> None:
        with suppress(OSError):  # no connection is waiting
            while self._listener is not None:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._greeting.append(connection)
        for connection in list(self._greeting):
            words = _peek(connection, _TOKEN_BYTES + _RANK_BYTES)
            if words is None or 0 < len(words) < _TOKEN_BYTES + _RANK_BYTES:
                continue
            self._greeting.remove(connection)
            if words[:_TOKEN_BYTES] == self._token:
                connection.recv(len(words))
                self._sockets[int.from_bytes(words[_TOKEN_BYTES:], "big")] = connection
            else:
                connection.close()


def _peek(connection: socket.socket, count: int) -> bytes | None:
    """Bytes that can be read, left in place; empty at the end, None while nothing has arrived."""
    try:
        return connection.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
