"""StreamingDataset: windows of a memory-mapped token set, in an order that is a function.

A stream is the sequence of positions 0, 1, 2 ... of an epoch; the order gives the window at each position
(`orders`), and `windows` cuts tokens into windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conf import AUTO
from data_loading.dataset.base import MapStyleDataset
from data_loading.dataset.batch_options import BatchOptions, too_short
from data_loading.dataset.epochs import shared_epoch
from data_loading.dataset.orders import DEFAULT_BLOCK_WINDOWS
from data_loading.dataset.packing.index import Packing
from data_loading.dataset.protocol import RankBatches, unshifted
from data_loading.dataset.split_data import Data, split_data
from data_loading.dataset.splits import Share
from data_loading.dataset.windows import Windows
from data_loading.readers.choose_reader import ReaderOptions, reader_of
from data_loading.readers.read_plan import Plan
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]


HUB = "hf://"
_AT_ONCE = 32
"""Most batches that are read together."""
RANKS = ("distinct", "shared")


class StreamingDataset(MapStyleDataset):
    """Map-style dataset over a split of tokens, which also returns resumable loaders (`loader`).

    `ds[i]` is a window and `ds.__getitems__(indices)` a batch of windows, at these positions of the current
    epoch. torch's DataLoader, Lightning and accelerate use it as they use any map-style dataset.

    `labels` ARE SHIFTED ALREADY: labels[:, t] is the token after input_ids[:, t], so that the loss is
    cross_entropy(logits.view(-1, vocab_size), labels.view(-1)). Models of transformers shift labels
    themselves: give `model(**batch)` batches of `shift_labels=False`.

    A dataset of the hub that is streamed is a `HubStream`: see `open_stream`.
    """

    reader: str
    """The way in which tokens are read, and the reason, in a line."""

    def __init__(
        self,
        source: str | Path | Tokens | Data,
        split: str = "train",
        seq_len: int = 1024,
        seed: int = 0,
        *,
        val: Share | None = None,
        test: Share = 0,
        order: str = "shuffled",
        block_windows: int = DEFAULT_BLOCK_WINDOWS,
        shard_windows: int | None = None,
        windows: str = "plain",
        stride: int | None = None,
        shift: int = 1,
        step_windows: int | None = None,
        documents: str = "across",
        reader: str = AUTO,
        max_resident_bytes: int | None = None,
        verify: str = "set",
        ranks: str = "distinct",
        shift_labels: bool = True,
        contiguous: bool = True,
    ) -> None:
        """Open the split of a set.

        Args:
            source: Tokens, as `open_tokens` returns them, or what it takes: a path, a name, a URI. Or data
                that are split already, as `prepare_data` returns them.
            split: train, val or test.
            seq_len: Inputs of a window.
            seed: Seed of the order.
            val: Share held out of a set as val, as a fraction (float) or in tokens (int). 0: nothing, so that
                train is all of it. None: as the set was made, or a tenth.
            test: The same for a test split.
            order: shuffled, sequential, shuffled_blocks of `block_windows` neighbouring windows, or
                shuffled_shards: one file after the other.
            block_windows: Windows of a block of shuffled_blocks.
            shard_windows: Windows of a file before the next one, of shuffled_shards; None: all.
            windows: Kind of batches (`batch_kinds`): plain; shifted or streams, which need step_windows.
            stride: Tokens from one window to the next; None: seq_len.
            shift: Tokens from an input to its label.
            step_windows: Windows of an optimizer step over all ranks and micro-batches.
            documents: across: windows cross the borders of documents. masked: with position_ids,
                cu_seqlens, and labels of -100 across borders. separate: the same, but each window is whole
                documents, packed, and padding. That needs an index on disk, which is made once.
            reader: mmap, pread, memory, or auto, which looks at files, disk and cluster.
            max_resident_bytes: Most bytes that mmap adds to RSS.
            verify: set: checksums once, when a set is first opened. blocks: each block again before its first
                use in this process.
            ranks: distinct: each rank reads its own part of a step. shared: all read the same windows.
            shift_labels: False: labels[:, t] is the token at input_ids[:, t], as `model(**batch)` of
                transformers expects; the first label of each window, and of each document if borders
                count, is -100.
            contiguous: False: input_ids and labels can be views of one tensor, of which a GPU needs one copy.

        Raises:
            UserError: nothing there, it does not fit its text, or the split has no window.
            NotTokenized: there is only the text.
        """
        options = BatchOptions(seq_len, windows, stride, shift, step_windows, documents)
        options.check()
        if not shift_labels and (shift != 1 or windows == "shifted"):
            raise UserError(
                "shift_labels=False: models of transformers shift labels by one token. Use shift=1, and "
                "windows='plain' or 'streams'",
                code="labels-not-shifted",
            )
        if type(seed) is not int or seed < 0:
            raise UserError(f"seed {seed!r}: expected a whole number, 0 or more", code="seed-invalid")
        data = _split(source, val, test)
        _, ranges = data.ranges_of(split)
        self.data, self.split, self.seq_len = data, split, seq_len
        self._epoch = shared_epoch()
        if options.count(data, split) == 0:
            raise UserError(too_short(data, split, options), code="too-few-tokens")
        check = verify == "blocks"
        self._batches = options.batches(
            data, split, order, seed, block_windows, shard_windows=shard_windows, check=check,
            is_shared=not contiguous,
        )  # fmt: skip
        self.shift_labels = shift_labels
        borders = ",".join(f"{part.start}-{part.stop}" for part in ranges)
        made_of = [self._batches.windows.name, self._batches.order.name, self._batches.name]
        if ranks not in RANKS:
            raise UserError(f"ranks {ranks!r}: choices are {', '.join(RANKS)}", code="ranks-unknown")
        self.ranks = ranks
        if ranks == "shared":
            made_of.append("shared by all ranks")
        self.fingerprint = ", ".join(
            [f"{data.fingerprint[:16]} {split} tokens {borders}", *filter(None, made_of)]
        )
        cut = self._batches.windows if isinstance(self._batches.windows, Windows) else None
        plan = Plan(tuple(ranges), cut, self._batches.order, split != "train")
        self._reader_options = ReaderOptions(reader, order != "sequential", max_resident_bytes, verify, plan)
        self._open_reader()

    def _open_reader(self) -> None:
        token_set, _ = self.data.ranges_of(self.split)
        self._reader, self.reader = reader_of(token_set, self._reader_options)
        self._batches.open(self._reader_options)

    @property
    def step_windows(self) -> int | None:
        """Windows of an optimizer step, which batches of all ranks must divide; None: any batch."""
        return self._batches.step_windows

    def __len__(self) -> int:
        """Return the windows in an epoch."""
        return self._batches.order.length

    @property
    def packing_efficiency(self) -> float | None:
        """Share of all windows' tokens that is no padding; None if windows are not packed."""
        windows = self._batches.windows
        return windows.efficiency if isinstance(windows, Packing) else None

    def window_at(self, positions: Sequence[int] | np.ndarray, epoch: int) -> np.ndarray:
        """Return the windows (int64) at these positions of an epoch."""
        if isinstance(positions, range) and positions.step == 1:
            if positions and not 0 <= positions.start <= positions.stop <= len(self):
                raise IndexError(f"{positions} of {len(self)} windows")
            return self._batches.order.span(positions.start, positions.stop, epoch)
        wanted = np.asarray(positions, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"windows {wanted.min()} to {wanted.max()} of {len(self)}")
        return self._batches.order.at(wanted, epoch)

    def read_at(self, epoch: int, positions: Sequence[int] | np.ndarray) -> Batch:
        """Return the batch of these positions of an epoch; those of a range cost least."""
        if len(positions):
            self._reader.reached(epoch, int(positions[0]))
        batch = self._batches.read(self._reader, self.window_at(positions, epoch), epoch, positions)
        return batch if self.shift_labels else unshifted(batch)

    def batches_per_read(self, batch_size: int) -> int:
        """Return how many batches of that size are best read together."""
        if not self._reader.is_here:
            return 1
        return max(1, min(_AT_ONCE, self._batches.tokens_per_read // (batch_size * self.seq_len)))

    def read_batches(self, part: RankBatches) -> Iterator[Batch]:
        """Return a rank's batches, read in one gather when this returns."""
        self._reader.reached(part.epoch, part.first)
        windows = self.window_at(range(part.first, part.last), part.epoch)
        if part.world_size > 1:
            windows = windows.reshape(part.batches, part.world_size, part.batch_size)[:, part.rank].ravel()
        batches = self._batches.read_each(self._reader, windows, part.batch_size)
        return batches if self.shift_labels else map(unshifted, batches)

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        """Hint that the positions start to stop of an epoch are read soon."""
        windows = self.window_at(range(start, stop), epoch)
        self._batches.will_need(self._reader, windows)

    def join(self, batches: Sequence[Batch]) -> Batch:
        """Return one batch of several, in their order."""
        return self._batches.join(batches)

    def interleave(self, batches: Sequence[Batch], rows: Sequence[np.ndarray]) -> Batch:
        """Return one batch of several: row k of batch i becomes row `rows[i][k]` (int64)."""
        return self._batches.interleave(batches, rows)

    @property
    def kind(self) -> str:
        """Kind of its batches."""
        return self._batches.kind

    @property
    def form(self) -> str:
        """Form of its batches: those of equal form can be joined."""
        shared = ", shared by all ranks" if self.ranks == "shared" else ""
        labels = "" if self.shift_labels else ", labels not shifted"
        return f"{self.kind} windows of {self.seq_len}, shift {self._batches.windows.shift}{shared}{labels}"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the reader out: a spawned worker maps the files itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_reader()


def _split(source: str | Path | Tokens | Data, val: Share | None, test: Share) -> Data:
    if isinstance(source, Data):
        if val is not None or test:
            raise UserError(
                f"val={val}, test={test}: {source.train.name} is split already. Give prepare_data the shares",
                code="val-given-twice",
            )
        return source
    if isinstance(source, str) and source.startswith(HUB):
        raise UserError(
            f"{source}: a dataset of the hub has no known number of tokens. Stream it: "
            f"open_stream({source!r}, tokenizer=...); or tokenize it once (python -m data_loading "
            f"materialize {source}) and read open_tokens({source!r})",
            code="stream-not-indexed",
        )
    from data_loading import open_tokens

    tokens = source if isinstance(source, Tokens) else open_tokens(source)
    if tokens.val_set is not None and val is not None:
        raise UserError(
            f"val={val}: {tokens.name} has a val of its own, {tokens.val_set.name}. Remove val",
            code="val-given-twice",
        )
    return split_data(tokens, tokens.val_set, None, val, test)
