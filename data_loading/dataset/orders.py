"""Orders: the window at each position of an epoch. Each order is a function; nothing is stored for it.

Every window has one position in each epoch, whatever the order.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator

import numpy as np

from data_loading.dataset.permutation import Permutation
from experiment_utils.errors import UserError

ORDERS = ("shuffled", "sequential", "shuffled_blocks", "shuffled_shards")
DEFAULT_BLOCK_WINDOWS = 256
_AHEAD = 1 << 14
"""Positions whose windows are computed together: 128 KB, and the fastest size."""
_ODD = 0x9E3779B1
"""2**32 / the golden ratio: neighbouring blocks get keys that are far apart."""


class Order(abc.ABC):
    """An order of n windows."""

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Difference from other orders of the same windows, for fingerprints."""

    @property
    def length(self) -> int:
        """Positions in an epoch."""
        return self.n

    @abc.abstractmethod
    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        """Return the windows (int64) at these positions (int64, in [0, n))."""

    def span(self, start: int, stop: int, epoch: int) -> np.ndarray:
        """Return the windows at the positions start to stop."""
        return self.at(np.arange(start, stop), epoch)

    def coming(self, position: int, epoch: int) -> Iterator[range]:
        """Yield ranges of windows that cover, in order, what is read from a position to the end of the epoch.

        One range of all windows if they come from everywhere.
        """
        yield range(self.n)


class Sequential(Order):
    """The order of the file, in every epoch."""

    name = "sequential"

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        return positions

    def coming(self, position: int, epoch: int) -> Iterator[range]:
        yield range(position, self.n)


class Shuffled(Order):
    """A pseudo-random permutation of all windows for each epoch."""

    def __init__(self, n: int, seed: int) -> None:
        super().__init__(n)
        self._seed = seed
        self._blocks: dict[tuple[int, int], np.ndarray] = {}

    @property
    def name(self) -> str:
        return f"shuffled, seed {self._seed}"

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        return Permutation(self.n, self._seed, epoch)(positions)

    def span(self, start: int, stop: int, epoch: int) -> np.ndarray:
        parts = []
        while start < stop:
            first = start - start % _AHEAD
            block = self._ahead(first, epoch)
            parts.append(block[start - first : stop - first])
            start = first + _AHEAD
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def _ahead(self, first: int, epoch: int) -> np.ndarray:
        """Return a block of the order, in which an index costs a third of what it costs alone.

        Two blocks are kept: hints for the next batches are computed while those before them are read.
        """
        block = self._blocks.get((first, epoch))
        if block is None:
            if len(self._blocks) > 1:
                del self._blocks[next(iter(self._blocks))]
            block = self.at(np.arange(first, min(first + _AHEAD, self.n)), epoch)
            self._blocks[first, epoch] = block
        return block

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_blocks": {}}


class ShuffledBlocks(Shuffled):
    """Blocks of `size` neighbouring windows in a shuffled order, and the windows of each shuffled.

    A block is read once and in one place: for cold disks and object stores. The last block, which can be
    short, has a slot of its own among the others.
    """

    def __init__(self, n: int, seed: int, size: int) -> None:
        if size < 1:
            raise UserError(f"blocks of {size} windows: expected at least 1", code="block-size-invalid")
        super().__init__(n, seed)
        self._size, self._short = size, n % size

    @property
    def name(self) -> str:
        return f"shuffled_blocks of {self._size}, seed {self._seed}"

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        size, whole = self._size, self.n // self._size
        # Positions of the short block are removed and put last; those after it move up.
        slot = _hashed(self._seed, epoch, whole + 1) * size
        last = (positions >= slot) & (positions < slot + self._short)
        rest = np.where(positions < slot, positions, positions - self._short)
        windows = np.empty(len(positions), np.int64)
        if self._short:
            windows[last] = whole * size + Permutation(self._short, self._seed, epoch)(positions[last] - slot)
        if whole:
            slots, inside = np.divmod(rest[~last], size)
            blocks = Permutation(whole, self._seed, epoch)(slots)
            tweaks = (blocks * _ODD).astype(np.uint32)
            windows[~last] = blocks * size + Permutation(size, self._seed, epoch)(inside, tweaks)
        return windows


class ShuffledShards(Shuffled):
    """The windows of one file after those of another: files in a shuffled order, windows within each as well.

    For sets of which only a few files are on this machine at a time. borders: `(files + 1,)` int64: number of
    the first window that begins in each file, and of all. serve: windows that are read of a file before the
    next one; the rest of it comes in a later round over the files. None: all windows.
    """

    def __init__(self, n: int, seed: int, borders: np.ndarray, serve: int | None = None) -> None:
        if serve is not None and serve < 1:
            raise UserError(f"{serve} windows of a shard: expected at least 1", code="shard-windows-invalid")
        super().__init__(n, seed)
        self._borders = np.asarray(borders, np.int64)
        self._counts = np.diff(self._borders)
        self._serve = serve or int(self._counts.max(initial=1))
        self._turns: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    @property
    def name(self) -> str:
        cut = hashlib.sha256(self._borders.astype("<i8").tobytes()).hexdigest()[:8]
        serve = f", {self._serve} at a time" if self._serve < self._counts.max(initial=1) else ""
        return f"shuffled_shards {cut}{serve}, seed {self._seed}"

    def turns(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (file, first of its windows in its own order, first position) of each turn of a file, int64.

        The positions have one more element, the number of all.
        """
        if epoch not in self._turns:
            if len(self._turns) > 1:
                del self._turns[next(iter(self._turns))]
            files, inside = [], []
            for number in range(-(-int(self._counts.max(initial=0)) // self._serve)):
                left = np.flatnonzero(self._counts > number * self._serve)
                key = _hashed(self._seed, epoch, 1 << 62)
                files.append(left[Permutation(len(left), key, number)(np.arange(len(left)))])
                inside.append(np.full(len(left), number * self._serve))
            file, first = np.concatenate(files), np.concatenate(inside)
            served = np.minimum(self._counts[file] - first, self._serve)
            self._turns[epoch] = file, first, np.cumsum([0, *served])
        return self._turns[epoch]

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        files, inside, first = self.turns(epoch)
        turns = np.searchsorted(first, positions, side="right") - 1
        windows = np.empty(len(positions), np.int64)
        for turn in np.unique(turns):
            here, file = turns == turn, int(files[turn])
            among = positions[here] - first[turn] + inside[turn]
            tweaks = np.full(len(among), file * _ODD % 2**32, np.uint32)
            shuffled = Permutation(int(self._counts[file]), self._seed, epoch)(among, tweaks)
            windows[here] = self._borders[file] + shuffled
        return windows

    def coming(self, position: int, epoch: int) -> Iterator[range]:
        files, _, first = self.turns(epoch)
        for file in files[int(np.searchsorted(first, position, side="right")) - 1 :]:
            yield range(int(self._borders[file]), int(self._borders[file + 1]))

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_turns": {}}


def _hashed(seed: int, epoch: int, below: int) -> int:
    digest = hashlib.sha256(f"{seed} {epoch} slot".encode()).digest()
    return int.from_bytes(digest[:8], "little") % below


def order_of(
    name: str,
    n: int,
    seed: int,
    block_windows: int = DEFAULT_BLOCK_WINDOWS,
    borders: np.ndarray | None = None,
    shard_windows: int | None = None,
) -> Order:
    """Return the order of this name. borders, shard_windows: of `ShuffledShards`; None: one shard, all of it.

    Raises:
        UserError: an unknown order; names the choices.
    """
    for option, of, is_given in (
        ("shard_windows", "shuffled_shards", shard_windows is not None),
        ("block_windows", "shuffled_blocks", block_windows != DEFAULT_BLOCK_WINDOWS),
    ):
        if is_given and name != of:
            raise UserError(
                f"{option} is of order={of}, and the order is {name}. Remove it",
                code="option-of-other-order",
            )
    if name == "shuffled":
        return Shuffled(n, seed)
    if name == "sequential":
        return Sequential(n)
    if name == "shuffled_blocks":
        return ShuffledBlocks(n, seed, block_windows)
    if name == "shuffled_shards":
        return ShuffledShards(n, seed, np.array([0, n]) if borders is None else borders, shard_windows)
    raise UserError(f"order {name!r}: choices are {', '.join(ORDERS)}", code="order-unknown")
