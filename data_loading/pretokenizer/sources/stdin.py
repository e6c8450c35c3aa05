"""Standard input as a stream of bytes: read once, so its start is kept for samples."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from data_loading.text_io.byte_files import SAMPLE_BYTES, read_errors, regrouped
from data_loading.text_io.compression import HEAD_BYTES, compression_of, decompressed
from data_loading.text_io.content_hash import ContentHash
from experiment_utils.errors import UserError

ARGUMENT = "-"


class StandardInput:
    """Output of a program that is piped in, decompressed if it is compressed."""

    argument = ARGUMENT
    total_bytes: int | None = None
    can_continue = False
    starts: Sequence[int] | None = (0,)

    def __init__(self, descriptor: int = 0) -> None:
        if descriptor == 0 and sys.stdin is not None and sys.stdin.isatty():
            raise UserError(
                "-: standard input is a terminal; pipe a text in: PROGRAM | python pretokenize_dataset.py - "
                "--output FILE.npy",
                code="input-is-terminal",
            )
        self._descriptor, self.done_bytes = descriptor, 0
        self._parts, self._start = regrouped(self._pieces()), list[bytes]()
        self._facts: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return "standard input" + (" (decompressed)" if "compression" in self._facts else "")

    def _pieces(self) -> Iterator[bytes]:
        head = b""
        while len(head) < HEAD_BYTES and (data := self._read(HEAD_BYTES - len(head))):
            head += data
        if not head:
            raise UserError("-: standard input is empty: there is nothing to tokenize", code="input-empty")
        compression = compression_of(head)
        if compression is not None:
            self._facts["compression"] = compression.name
            begun = [head]

            def read(size: int) -> bytes:
                return begun.pop() if begun else self._read(size)

            yield from decompressed(read, compression, "standard input", SAMPLE_BYTES)
            return
        yield head
        while data := self._read(SAMPLE_BYTES):
            yield data

    def _read(self, size: int) -> bytes:
        with read_errors("-: standard input"):
            data = os.read(self._descriptor, size)
        self.done_bytes += len(data)
        return data

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """Yield (bytes, offset), once."""
        assert first == 0, "cannot begin anywhere else"
        content, offset, is_whole = content or ContentHash(), 0, False
        try:
            while data := self._start.pop(0) if self._start else next(self._parts, b""):
                content.update(data)
                offset += len(data)
                yield data, offset - len(data)
            is_whole = True
        finally:
            self._facts |= {"content_hash": content.hexdigest(), "bytes": self.done_bytes}
            if not is_whole:
                self._facts |= {"bytes": offset, "read_bytes": offset}

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        """The first bytes, which `read` still yields."""
        while sum(map(len, self._start)) < length and (data := next(self._parts, b"")):
            self._start.append(data)
        data = b"".join(self._start)[:length]
        return data, len(data)

    def state(self) -> Any:
        return [ARGUMENT]

    def facts(self) -> dict[str, Any]:
        return {"path": ARGUMENT, **self._facts}
