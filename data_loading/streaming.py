"""StreamingDataset: windows of a memory-mapped token set, in an order that is a function.

What a window is says `windows`. A stream is the sequence of positions 0, 1, 2 ... of an epoch; the order
says which window stands at a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conf import UserError
from data_loading.data import Data, open_for_reading, split_data
from data_loading.order import Permutation
from data_loading.token_set import TokenSet
from data_loading.windows import Windows

if TYPE_CHECKING:
    import torch

    from data_loading.loader import Loader

    Batch = dict[str, torch.Tensor]

ORDERS = ("shuffled", "sequential")
_ORDER_BLOCK = 1 << 14
"""Positions whose windows are computed at once: 128 KB, and the fastest size."""


class StreamingDataset:
    """Map-style dataset over a split.

    `ds[i]` and `ds.__getitems__(indices)` give the windows at these positions of the current epoch.
    With a torch DataLoader of your own, pass `collate_fn=StreamingDataset.collate`.
    """

    def __init__(
        self,
        source: str | Path | TokenSet,
        split: str = "train",
        seq_len: int = 1024,
        seed: int = 0,
        val_fraction: float = 0.1,
        order: str = "shuffled",
    ) -> None:
        """source: a token set, or the path of one: X.npy, X.txt with X.npy beside it, or X.

        Raises:
            UserError: nothing there, it does not fit its text, or not one window in the split.
            NotTokenized: there is only the text.
        """
        data = _open(source, val_fraction)
        self._set_up(data, split, seq_len, seed, order)

    @classmethod
    def from_data(
        cls, data: Data, split: str, seq_len: int, seed: int, order: str = "shuffled"
    ) -> StreamingDataset:
        """A split of prepared data. Raises UserError as the constructor does."""
        dataset = cls.__new__(cls)
        dataset._set_up(data, split, seq_len, seed, order)
        return dataset

    def _set_up(self, data: Data, split: str, seq_len: int, seed: int, order: str) -> None:
        if order not in ORDERS:
            raise UserError(f"order {order!r}: choices are {', '.join(ORDERS)}")
        if seq_len < 1:
            raise UserError(f"seq_len {seq_len}: expected at least 1")
        token_set, ranges = data.ranges_of(split)
        self.data, self.split, self.seq_len, self.seed, self.order = data, split, seq_len, seed, order
        self.epoch = 0
        self._length = data.windows(split, seq_len)
        if self._length == 0:
            raise UserError(
                f"the {split} split of {token_set.path} has {data.tokens(split):,} tokens, one window of "
                f"{seq_len:,} needs {seq_len + 1:,}. Set a smaller seq_len (at most "
                f"{max(max(map(len, ranges)) - 1, 0):,}) or use more text"
            )
        self.fingerprint = (
            f"{data.fingerprint[:16]} {split} tokens "
            f"{','.join(f'{tokens.start}-{tokens.stop}' for tokens in ranges)}, windows of {seq_len}, {order}"
            + (f", seed {seed}" if order == "shuffled" else "")
        )
        self._block: tuple[int, int, np.ndarray] | None = None
        self._map()

    def _map(self) -> None:
        token_set, ranges = self.data.ranges_of(self.split)
        self._windows = Windows(token_set.tokens, ranges, self.seq_len)

    def __len__(self) -> int:
        """Windows in an epoch."""
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order positions refer to; another epoch is another order."""
        if epoch < 0:
            raise ValueError(f"epochs count from 0, got {epoch}")
        self.epoch = epoch

    def __getitem__(self, index: int) -> Batch:
        """One sample, (seq_len,) each. Negative indices count from the end, as in a list."""
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"window {index} of {self._length}")
        batch = self.__getitems__([index])
        return {name: rows[0] for name, rows in batch.items()}

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """A whole batch, (len(indices), seq_len) int64 each, read in one gather.

        input_ids and labels are views of one tensor: labels[:, t] is the token after input_ids[:, t].
        """
        return self.gather(self.window_at(indices, self.epoch))

    @staticmethod
    def collate(batch: Batch) -> Batch:
        """For a DataLoader of torch: what __getitems__ returned is a batch already."""
        return batch

    def window_at(self, positions: Sequence[int] | np.ndarray, epoch: int) -> np.ndarray:
        """Windows (int64) that stand at these positions of an epoch."""
        if isinstance(positions, range) and positions.step == 1:
            if positions and not 0 <= positions.start <= positions.stop <= self._length:
                raise IndexError(f"{positions} of {self._length} windows")
            return self._contiguous(positions.start, positions.stop, epoch)
        wanted = np.asarray(positions, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self._length:
            raise IndexError(f"windows {wanted.min()} to {wanted.max()} of {self._length}")
        return wanted if self.order == "sequential" else Permutation(self._length, self.seed, epoch)(wanted)

    def _contiguous(self, start: int, stop: int, epoch: int) -> np.ndarray:
        if self.order == "sequential":
            return np.arange(start, stop)
        parts = []
        while start < stop:
            first = start - start % _ORDER_BLOCK
            block = self._order_block(first, epoch)
            parts.append(block[start - first : stop - first])
            start = first + _ORDER_BLOCK
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def _order_block(self, first: int, epoch: int) -> np.ndarray:
        """The order ahead by blocks: an index costs a third of what it costs alone."""
        if self._block is None or self._block[:2] != (first, epoch):
            positions = np.arange(first, min(first + _ORDER_BLOCK, self._length))
            self._block = (first, epoch, Permutation(self._length, self.seed, epoch)(positions))
        return self._block[2]

    def gather(self, windows: np.ndarray) -> Batch:
        """The batch of these windows, in their order."""
        import torch

        rows = torch.from_numpy(self._windows.gather(windows).astype(np.int64))
        return {"input_ids": rows[:, :-1], "labels": rows[:, 1:]}

    def loader(
        self,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        num_batches: int | None = None,
        repeat: bool = False,
    ) -> Loader:
        """Batches of this rank, resumable; see `Loader`."""
        from data_loading.loader import Loader

        return Loader(self, batch_size, rank, world_size, num_workers, num_batches, repeat)

    def __getstate__(self) -> dict[str, Any]:
        """Without the mapped view: a spawned worker maps the file itself."""
        state = self.__dict__.copy()
        del state["_windows"]
        state["_block"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


def _open(source: str | Path | TokenSet, val_fraction: float) -> Data:
    if isinstance(source, TokenSet):
        return split_data(source, None, None, val_fraction)
    return open_for_reading(str(source), val_fraction)
