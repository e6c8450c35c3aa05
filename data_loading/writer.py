"""Writing a token set block by block, in constant memory."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from data_loading.blocks import EncodedBlock
from data_loading.npy import NpyWriter

CHECKSUM_BYTES = 64 << 20
"""Bytes of tokens under one checksum of the manifest."""


class SetWriter:
    """Writes `tokens.npy` and `docs.npy` into a folder.

    tokens, documents: counts so far. checksums: sha256 of each CHECKSUM_BYTES of token data, after
    `close`. largest_id: of all written.
    """

    def __init__(self, folder: Path, dtype: np.dtype) -> None:
        self.tokens = self.documents = 0
        self.checksums: list[str] = []
        self._document_start = 0
        self._digest, self._digested = hashlib.sha256(), 0
        with ExitStack() as stack:
            self._files = [
                stack.enter_context(open(folder / name, "wb", buffering=1 << 20))
                for name in ("tokens.npy", "docs.npy")
            ]
            self._tokens = NpyWriter(self._files[0], dtype)
            self._starts = NpyWriter(self._files[1], np.dtype("<u8"))
            self._stack = stack.pop_all()

    def append(self, block: EncodedBlock) -> None:
        """Raises OSError when the disk is full."""
        ends = block.document_ends + self.tokens
        if len(ends):
            self._starts.append(np.concatenate([[self._document_start], ends[:-1]]))
            self._document_start = int(ends[-1])
            self.documents += len(ends)
        self._tokens.append(block.ids)
        self._update_checksums(block.ids.data.cast("B") if len(block.ids) else memoryview(b""))
        self.tokens += len(block.ids)

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
