"""Write a token set block by block, in constant memory, from any block on."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

import numpy as np

from data_loading.pretokenizer.blocks import EncodedBlock
from data_loading.tokens.npy import HEADER_BYTES, NpyWriter, header
from data_loading.tokens.shard_layout import ONE_FILE, Layout

CHECKSUM_BYTES = 64 << 20
"""Bytes of tokens under one checksum of the manifest; a shard begins a new one."""
STARTS = np.dtype("<u8")
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Written:
    """Content of the files of a set."""

    tokens: int = 0
    documents: int = 0
    """Documents that have begun."""
    document_start: int = 0
    """First token of the document that has not ended."""
    shard_documents: int = 0
    """Documents that begin in the shard with the last token."""


_NOTHING = Written()


class SetWriter:
    """Writes the files of `layout` into a folder.

    After each `append` all data are with the kernel, so that they outlive this process.

    Args:
        folder: Hidden folder of the set.
        dtype: Dtype of the tokens.
        done: Content of an earlier attempt. Anything behind it is removed.
        checksums: SHA-256 of each CHECKSUM_BYTES of its tokens.
        layout: Division into shards.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype,
        done: Written = _NOTHING,
        checksums: Sequence[str] = (),
        layout: Layout = ONE_FILE,
    ) -> None:
        self.written = done
        self.checksums = list(checksums)
        self._folder, self._dtype, self._layout = folder, dtype, layout
        self._unsynced: deque[Path] = deque()
        self._shard = layout.last_shard(done.tokens)
        self._repair_earlier_shards()
        self._open(done.tokens - layout.first_token(self._shard), done.shard_documents)
        self._digest_again()

    def append(self, block: EncodedBlock) -> int:
        """Write a block; returns a CRC-32 of what was written. Raises OSError when the disk is full."""
        before, crc = self.written, 0
        total = before.tokens + len(block.ids)
        starts, here = _starts_in(block, before), before.shard_documents
        for shard, start, stop in self._layout.spans(before.tokens, total):
            if shard != self._shard:
                self._close()
                self._shard, here = shard, 0
                self._open(0, 0)
            ids = block.ids[start - before.tokens : stop - before.tokens]
            is_here = (starts >= start) & ((starts < stop) | (stop == total))
            begun = (starts[is_here] - self._layout.first_token(shard)).astype(STARTS)
            self._tokens.append(ids)
            self._starts.append(begun)
            here += len(begun)
            for file in self._files:
                file.flush()
            self._update_checksums(_bytes(ids))
            crc = zlib.crc32(_bytes(begun), zlib.crc32(_bytes(ids), crc))
        self.written = Written(
            tokens=total,
            documents=before.documents + len(starts),
            document_start=before.tokens + int(block.document_ends[-1])
            if len(block.document_ends)
            else before.document_start,
            shard_documents=here,
        )
        return crc

    def sync(self) -> None:
        """Write all data that are with the kernel to the device. Another thread can call it."""
        while self._unsynced:
            _sync(self._unsynced.popleft())
        for file in self._files:
            _sync(Path(file.name))

    def finish(self) -> None:
        """Write the headers and close the files, which are not synced yet."""
        self._close()

    def abandon(self) -> None:
        """Close the files of a failed job without data that cannot be flushed."""
        for file in self._files:
            try:
                file.close()
            except OSError:
                file.raw.close()  # type: ignore[attr-defined]

    def _open(self, tokens: int, documents: int) -> None:
        """Open the files of the current shard behind `tokens` and `documents`."""
        paths = [self._folder / name for name in self._layout.names(self._shard)]
        self._files = [_open(path) for path in paths]
        self._tokens = NpyWriter(self._files[0], self._dtype, tokens)
        self._starts = NpyWriter(self._files[1], STARTS, documents)
        self._digest, self._digested = hashlib.sha256(), 0

    def _close(self) -> None:
        """Finish the current shard."""
        if self._digested:
            self._close_checksum()
        self._tokens.finish()
        self._starts.finish()
        for file in self._files:
            file.close()
            self._unsynced.append(Path(file.name))

    def _repair_earlier_shards(self) -> None:
        """Write headers that a power cut has lost, and remove shards behind the current one."""
        for shard in range(self._shard):
            for name, dtype in zip(self._layout.names(shard), (self._dtype, STARTS), strict=True):
                with open(self._folder / name, "r+b") as file:
                    values = (os.fstat(file.fileno()).st_size - HEADER_BYTES) // dtype.itemsize
                    if file.read(HEADER_BYTES) != header(dtype, values):
                        file.seek(0)
                        file.write(header(dtype, values))
        if self._layout.shard_tokens is None:
            return
        for shard in count(self._shard + 1):
            paths = [self._folder / name for name in self._layout.names(shard)]
            if not any(path.exists() for path in paths):
                break
            for path in paths:
                path.unlink(missing_ok=True)

    def _digest_again(self) -> None:
        """Compute the checksum of the part of a piece that an earlier attempt wrote."""
        size, first = self._dtype.itemsize, self._layout.first_token(self._shard)
        in_shard = -(-(self._layout.shard_tokens or 0) * size // CHECKSUM_BYTES)
        whole = (len(self.checksums) - self._shard * in_shard) * CHECKSUM_BYTES
        left = (self.written.tokens - first) * size - whole
        file = self._files[0]
        file.seek(HEADER_BYTES + whole)
        while left > 0:
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


def _starts_in(block: EncodedBlock, before: Written) -> np.ndarray:
    """First tokens (int64) of the documents that the block begins."""
    starts = np.concatenate([[before.document_start], block.document_ends + before.tokens]).astype(np.int64)
    is_new = np.ones(len(starts), bool)
    is_new[-1] = before.tokens + len(block.ids) > starts[-1]  # else it begins with the next block
    is_new[0] &= before.tokens == before.document_start  # else it was there before
    return starts[is_new]


def crc_of_files(
    folder: Path, dtype: np.dtype, before: Written, after: Written, layout: Layout = ONE_FILE
) -> int | None:
    """CRC-32 of the data between two states, as `append` returns it; None if some data are missing."""
    crc, last = 0, layout.last_shard(after.tokens)
    for shard, start, stop in layout.spans(before.tokens, after.tokens):
        tokens, starts = (folder / name for name in layout.names(shard))
        first = layout.first_token(shard)
        ids = _read(tokens, dtype.itemsize, start - first, stop - first)
        documents = before.shard_documents if shard == layout.last_shard(before.tokens) else 0
        begun = _read(starts, STARTS.itemsize, documents, after.shard_documents if shard == last else None)
        if ids is None or begun is None:
            return None
        crc = zlib.crc32(begun, zlib.crc32(ids, crc))
    return crc


def _read(path: Path, itemsize: int, start: int, stop: int | None) -> bytes | None:
    """Values from `start` to `stop`, or to the last one; None if some are missing."""
    try:
        with open(path, "rb") as file:
            file.seek(HEADER_BYTES + start * itemsize)
            if stop is None:
                return file.read()
            data = file.read((stop - start) * itemsize)
            return data if len(data) == (stop - start) * itemsize else None
    except FileNotFoundError:
        return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> IO[bytes]:
    path.touch()
    return open(path, "r+b", buffering=1 << 16)  # a block is larger: it is not copied


def _bytes(values: np.ndarray) -> memoryview:
    return values.data.cast("B") if len(values) else memoryview(b"")
