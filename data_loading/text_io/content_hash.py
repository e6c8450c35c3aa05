"""The content hash of a source: SHA-256 over the SHA-256 digests of its pieces of 64 MB.

Unlike a plain SHA-256 it can be continued in the middle of a text of terabytes, from the digests of
the pieces before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

PIECE_BYTES = 64 << 20
_READ_BYTES = 1 << 20


class ContentHash:
    """Hash of the bytes of a source, which `update` takes in order.

    known: hex digests of pieces from the first one on that need not be computed again. on_piece:
    called with each digest that is computed.
    """

    def __init__(
        self, known: Sequence[str] = (), on_piece: Callable[[str], None] = lambda digest: None
    ) -> None:
        self._digests = list(known)
        self._on_piece = on_piece
        self._at = 0
        self._piece = hashlib.sha256()

    @property
    def known_bytes(self) -> int:
        """Bytes from the start that need not be shown to `update`."""
        return len(self._digests) * PIECE_BYTES

    def skip_to(self, offset: int) -> None:
        """Continue at this byte, at most `known_bytes`."""
        assert self._at <= offset <= self.known_bytes
        self._at = offset

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(data)
        already = max(0, min(len(view), self.known_bytes - self._at))
        self._at += already
        view = view[already:]
        while len(view):
            part = view[: PIECE_BYTES - self._at % PIECE_BYTES]
            self._piece.update(part)
            self._at += len(part)
            view = view[len(part) :]
            if self._at % PIECE_BYTES == 0:
                digest = self._piece.hexdigest()
                self._digests.append(digest)
                self._piece = hashlib.sha256()
                self._on_piece(digest)

    @property
    def digests(self) -> list[str]:
        """Digests of the pieces so far, the last of which can be shorter than the others."""
        whole, rest = divmod(self._at, PIECE_BYTES)
        return self._digests[:whole] + ([self._piece.hexdigest()] if rest else [])

    def hexdigest(self) -> str:
        """Hash of all bytes so far, without known pieces after them."""
        return hash_of_pieces(self.digests)


def hash_of_pieces(digests: Sequence[str]) -> str:
    """The content hash of a source with these pieces, hex digests in their order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def file_content_hash(path: Path) -> str:
    """The content hash of a file's bytes. Raises OSError."""
    content = ContentHash()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            content.update(data)
    return content.hexdigest()
