"""Standard input as a stream of bytes: read once, so its start is kept for the samples."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_loading.text_io.byte_files import SAMPLE_BYTES, regrouped
from data_loading.text_io.compression import HEAD_BYTES, compression_of, decompressed
from data_loading.text_io.content_hash import ContentHash
from experiment_utils.errors import UserError

ARGUMENT = "-"


@dataclass
class StandardInput:
    """What a program pipes in, decompressed where it is compressed."""

    descriptor: int = 0
    argument: str = field(init=False, default=ARGUMENT)
    total_bytes: None = field(init=False, default=None)
    done_bytes: int = field(init=False, default=0)
    can_continue: bool = field(init=False, default=False)
    _compression: str | None = field(init=False, default=None)
    _start: list[bytes] = field(init=False, default_factory=list)
    _facts: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.descriptor == 0 and sys.stdin is not None and sys.stdin.isatty():
            raise UserError(
                "-: standard input is a terminal; pipe a text in: PROGRAM | python pretokenize_dataset.py - "
                "--output FILE.npy",
                code="input-is-terminal",
            )
        self._parts = regrouped(self._pieces())

    @property
    def name(self) -> str:
        return "standard input" + (" (decompressed)" if self._compression else "")

    def _pieces(self) -> Iterator[bytes]:
        head = b""
        while len(head) < HEAD_BYTES and (data := self._read(HEAD_BYTES - len(head))):
            head += data
        if not head:
            raise UserError("-: standard input is empty: there is nothing to tokenize", code="input-empty")
        compression = compression_of(head)
        if compression is not None:
            self._compression = compression.name
            begun = [head]

            def read(size: int) -> bytes:
                return begun.pop() if begun else self._read(size)

            yield from decompressed(read, compression, "standard input", SAMPLE_BYTES)
            return
        yield head
        while data := self._read(SAMPLE_BYTES):
            yield data

    def _read(self, size: int) -> bytes:
        try:
            data = os.read(self.descriptor, size)
        except OSError as error:
            raise UserError(
                f"-: standard input cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        self.done_bytes += len(data)
        return data

    def read(self, first: int = 0, content: ContentHash | None = None) -> Iterator[tuple[bytes, int]]:
        """Once."""
        assert first == 0, "cannot begin anywhere else"
        content, offset, is_whole = content or ContentHash(), 0, False
        try:
            while data := self._start.pop(0) if self._start else next(self._parts, b""):
                content.update(data)
                offset += len(data)
                yield data, offset - len(data)
            is_whole = True
        finally:
            self._facts = {"content_hash": content.hexdigest(), "bytes": self.done_bytes}
            if self._compression:
                self._facts["compression"] = self._compression
            if not is_whole:
                self._facts |= {"bytes": offset, "read_bytes": offset}

    def parts(self) -> list[tuple[bytes, int]]:
        while sum(map(len, self._start)) < 3 * SAMPLE_BYTES and (data := next(self._parts, b"")):
            self._start.append(data)
        return [(b"".join(self._start)[: 3 * SAMPLE_BYTES], 0)]

    @property
    def starts(self) -> Sequence[int]:
        return (0,)

    def at(self, start: int, length: int) -> tuple[bytes, int]:
        data = self.parts()[0][0][:length]
        return data, len(data)

    def state(self) -> Any:
        return [ARGUMENT]

    def facts(self) -> dict[str, Any]:
        return {"path": ARGUMENT, **self._facts}
