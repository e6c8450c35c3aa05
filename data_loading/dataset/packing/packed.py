"""Batches whose windows are whole documents, packed, then padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.dataset.batch_kinds import FROM_FIRST_ID, DocumentBatches, Positions, borders_tensor
from data_loading.dataset.orders import Order
from data_loading.dataset.packing.index import PIECES, ROWS, Packing
from data_loading.dataset.protocol import IGNORED_LABEL
from data_loading.readers.choose_reader import ReaderOptions, open_reader
from data_loading.readers.extents import extents_of
from data_loading.readers.reader import Reader, elements
from data_loading.tokens.npy import open_npy
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

_HINTED_TOKENS = 512
"""Fewest tokens of a hint: a disk reads whole pages."""


class Packed(DocumentBatches):
    """Rows of a packing. Padding has labels of -100 and is the last segment of its row.

    The index is read as the tokens are, by two readers of its own.
    """

    kind = "separate"
    name = "documents separate"
    windows: Packing

    def __init__(self, packing: Packing, order: Order, pad_id: int, *, is_before: bool = False) -> None:
        """Prepare batches. pad_id: id of padding. is_before: as in `Masked`."""
        super().__init__(packing, order)
        self.name += FROM_FIRST_ID if is_before else ""
        self._pad_id = pad_id
        self._rows: Reader
        self._pieces: Reader

    def open(self, options: ReaderOptions) -> None:
        maps = (open_npy(self.windows.folder / name) for name in (ROWS, PIECES))
        self._rows, self._pieces = (open_reader(extents_of(found), options)[0] for found in maps)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the readers out: another process opens them itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_rows", "_pieces")}

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        n, seq_len, shift = len(windows), self.windows.seq_len, self.windows.shift
        starts, lengths, pieces = self._pieces_in(windows)
        ends = np.cumsum(pieces)
        used = np.add.reduceat(lengths, ends - pieces) if n else lengths
        if used.max(initial=0) > seq_len + shift:
            raise self._damaged()
        tokens = reader.gather_spans(starts, lengths)
        rows = np.full((n, seq_len + shift), self._pad_id, tokens.dtype)
        rows[np.arange(seq_len + shift) < used[:, None]] = tokens
        # Segments of each row: its pieces, then padding, which can be empty.
        piece = np.arange(len(lengths)) + np.repeat(np.arange(n), pieces)
        left = ends + np.arange(n)
        sizes, unlabelled = np.empty((2, len(lengths) + n), np.int64)
        sizes[piece], sizes[left] = np.minimum(lengths, seq_len), seq_len - np.minimum(used, seq_len)
        unlabelled[piece] = np.minimum(lengths, seq_len) - (lengths - shift)
        unlabelled[left] = sizes[left]
        stops = np.cumsum(sizes)
        labels = rows[:, shift:].astype(np.int64)
        labels.reshape(-1)[elements(stops - unlabelled, unlabelled)] = IGNORED_LABEL
        position_ids = np.repeat(sizes - stops, sizes)
        position_ids += np.arange(n * seq_len)
        return {
            "input_ids": torch.from_numpy(rows[:, :seq_len].astype(np.int64)),
            "labels": torch.from_numpy(labels),
            "position_ids": torch.from_numpy(position_ids.reshape(n, seq_len)),
            "cu_seqlens": borders_tensor((stops - sizes)[sizes > 0], n * seq_len),
        }

    def will_need(self, reader: Reader, windows: np.ndarray) -> None:
        self._rows.will_need(windows, 2)
        starts, lengths, _ = self._pieces_in(windows)
        widths = 1 << np.ceil(np.log2(np.maximum(lengths, _HINTED_TOKENS))).astype(np.int64)
        for width in np.unique(widths).tolist():
            reader.will_need(starts[widths == width], width)

    def _pieces_in(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return starts and lengths of the pieces of these rows, and the number of pieces of each row."""
        first, last = self._rows.gather(windows, 2).astype(np.int64).T
        if (last <= first).any() or last.max(initial=0) > self.windows.pieces:
            raise self._damaged()
        table = self._pieces.gather_spans(2 * first, 2 * (last - first)).astype(np.int64)
        starts, lengths = table[::2], table[1::2]
        stop = (starts + lengths).max(initial=0)
        if starts.min(initial=0) < 0 or lengths.min(initial=1) < 1 or stop > self.windows.stop:
            raise self._damaged()
        return starts, lengths, last - first

    def _damaged(self) -> UserError:
        folder = self.windows.folder
        return UserError(
            f"{folder} is damaged: its rows are not whole pieces of documents. Remove it (rm -r {folder}) "
            "and repeat the command, which makes it again",
            code="packing-damaged",
        )
