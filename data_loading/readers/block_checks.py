"""Checksums of the blocks that are read, compared before the first use of each in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from data_loading.readers.reader import Reader
from data_loading.tokens.shards import Part
from experiment_utils.errors import UserError


class CheckedReader(Reader):
    """Another reader's spans, after their blocks have matched the checksums of the manifest.

    It finds what changed since the set was verified as a whole: a disk that fails, a write that left size and
    time as they were. The first epoch reads every block once more.
    """

    def __init__(self, reader: Reader, parts: Sequence[Part], block_bytes: int) -> None:
        """parts: the token files, in the order of the reader's runs, one run each."""
        super().__init__(reader.extents)
        self.name, self._reader, self._parts = reader.name, reader, parts
        self._block_tokens = block_bytes // reader.extents.dtype.itemsize
        self._first = np.cumsum([0, *(len(part.blocks) for part in parts)])
        self._checked = np.zeros(self._first[-1], bool)

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Return the spans of the other reader.

        Raises:
            UserError: a block differs from its checksum; names file and bytes.
        """
        self._check(starts, starts + width)
        return self._reader.gather(starts, width)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the spans of the other reader, checked as in `gather`."""
        self._check(starts, starts + lengths)
        return self._reader.gather_spans(starts, lengths)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        self._reader.will_need(starts, width)

    def _check(self, starts: np.ndarray, ends: np.ndarray) -> None:
        if self._checked.all():
            return
        for first, last in np.unique(np.stack([self._block_of(starts), self._block_of(ends - 1)]).T, axis=0):
            for block in range(int(first), int(last) + 1):
                if not self._checked[block]:
                    self._check_block(block)

    def _block_of(self, tokens: np.ndarray) -> np.ndarray:
        """Return the block of each token, counted over all parts."""
        runs = np.searchsorted(self.extents.first, tokens, side="right") - 1
        found: np.ndarray = self._first[runs] + (tokens - self.extents.first[runs]) // self._block_tokens
        return found

    def _check_block(self, block: int) -> None:
        number = int(np.searchsorted(self._first, block, side="right")) - 1
        part, inside = self._parts[number], block - int(self._first[number])
        start = inside * self._block_tokens
        count = min(self._block_tokens, part.tokens - start)
        content = self._reader.gather(np.array([part.first_token + start]), count)
        if hashlib.sha256(content.data).hexdigest() != part.blocks[inside]:
            size = self.extents.dtype.itemsize
            raise UserError(
                f"{part.tokens_path}: bytes {start * size:,} to {(start + count) * size:,} of its tokens do "
                "not match their checksum: the file was changed or damaged since it was opened. Copy the set "
                "again, and type the same command again to resume from the last checkpoint",
                code="tokens-changed",
            )
        self._checked[block] = True
