"""Writing a token set block by block, in constant memory, from any block on."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from data_loading.npy import HEADER_BYTES, NpyWriter
from data_loading.pretokenizer.blocks import EncodedBlock

CHECKSUM_BYTES = 64 << 20
"""Bytes of tokens under one checksum of the manifest."""
STARTS = np.dtype("<u8")
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Written:
    """What of a set is in its files. document_start: first token of the document that has not ended."""

    tokens: int = 0
    documents: int = 0
    document_start: int = 0


_NOTHING = Written()


class SetWriter:
    """Writes `tokens.npy` and `docs.npy` into a folder.

    done: what an earlier attempt has written there; anything behind it is cut off. checksums: sha256
    of each CHECKSUM_BYTES of token data so far; grows. After each `append` everything is with the
    kernel, so that it outlives this process.
    """

    def __init__(
        self, folder: Path, dtype: np.dtype, done: Written = _NOTHING, checksums: Sequence[str] = ()
    ) -> None:
        self.written = done
        self.checksums = list(checksums)
        self._digest, self._digested = hashlib.sha256(), 0
        with ExitStack() as stack:
            self._files = [stack.enter_context(_open(folder / name)) for name in ("tokens.npy", "docs.npy")]
            self._tokens = NpyWriter(self._files[0], dtype, done.tokens)
            self._starts = NpyWriter(self._files[1], STARTS, done.documents)
            self._digest_again(dtype)
            self._stack = stack.pop_all()

    def append(self, block: EncodedBlock) -> int:
        """Write a block; returns a CRC-32 of what was written. Raises OSError when the disk is full."""
        before = self.written
        ends = block.document_ends + before.tokens
        starts = np.concatenate([[before.document_start], ends])[: len(ends)].astype(STARTS)
        ids = _bytes(block.ids)
        self._tokens.append(block.ids)
        self._starts.append(starts)
        for file in self._files:
            file.flush()
        self._update_checksums(ids)
        self.written = Written(
            tokens=before.tokens + len(block.ids),
            documents=before.documents + len(ends),
            document_start=int(ends[-1]) if len(ends) else before.document_start,
        )
        return zlib.crc32(_bytes(starts), zlib.crc32(ids))

    def sync(self) -> None:
        """Have the device write what is with the kernel; may be called from another thread."""
        for file in self._files:
            os.fdatasync(file.fileno())

    def _digest_again(self, dtype: np.dtype) -> None:
        """Take up the checksum of a piece of which an earlier attempt wrote a part."""
        whole = len(self.checksums) * CHECKSUM_BYTES
        left = self.written.tokens * dtype.itemsize - whole
        file = self._files[0]
        file.seek(HEADER_BYTES + whole)
        while left:
            data = file.read(min(left, _READ_BYTES))
            self._update_checksums(memoryview(data))
            left -= len(data)
        file.seek(0, os.SEEK_END)

    def _update_checksums(self, data: memoryview) -> None:
        while len(data):
            part = data[: CHECKSUM_BYTES - self._digested]
            self._digest.update(part)
            self._digested += len(part)
            data = data[len(part) :]
            if self._digested == CHECKSUM_BYTES:
                self._close_checksum()

    def _close_checksum(self) -> None:
        self.checksums.append(self._digest.hexdigest())
        self._digest, self._digested = hashlib.sha256(), 0

    def finish(self) -> None:
        """Write the headers; everything is in the files when this returns, not yet synced."""
        if self._digested:
            self._close_checksum()
        self._tokens.finish()
        self._starts.finish()
        self._stack.close()

    def abandon(self) -> None:
        """Close the files of a run that failed; what cannot be flushed any more is given up."""
        for file in self._files:
            try:
                file.close()
            except OSError:
                file.raw.close()  # type: ignore[attr-defined]


def crc_of_files(folder: Path, dtype: np.dtype, before: Written, after: Written) -> int | None:
    """The CRC-32 that `append` gave for what lies between the two; None where it is not all there."""
    crc = 0
    for name, start, stop, size in (
        ("tokens.npy", before.tokens, after.tokens, dtype.itemsize),
        ("docs.npy", before.documents, after.documents, STARTS.itemsize),
    ):
        with open(folder / name, "rb") as file:
            file.seek(HEADER_BYTES + start * size)
            data = file.read((stop - start) * size)
        if len(data) < (stop - start) * size:
            return None
        crc = zlib.crc32(data, crc)
    return crc


def _open(path: Path) -> IO[bytes]:
    path.touch()
    return open(path, "r+b", buffering=1 << 20)


def _bytes(values: np.ndarray) -> memoryview:
    return values.data.cast("B") if len(values) else memoryview(b"")
