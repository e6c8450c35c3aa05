"""StreamingDataset: windows of a memory-mapped token set, in an order that is a function.

What a window is says `windows`. A stream is the sequence of positions 0, 1, 2 ... of an epoch; the order
says which window stands at a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conf import AUTO
from data_loading.batch_options import BatchOptions, too_short
from data_loading.batches import unshifted
from data_loading.data import Data, split_data
from data_loading.hub.name import PREFIX as HUB
from data_loading.loadable import MapStyle, shared_epoch
from data_loading.opening import open_for_reading
from data_loading.orders import DEFAULT_BLOCK_WINDOWS
from data_loading.packing.index import Packing
from data_loading.readers.choose import ReaderOptions
from data_loading.readers.plan import Plan
from data_loading.spans import Taken
from data_loading.splits import Share
from data_loading.tokens import Tokens
from data_loading.windows import Windows
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.tokenizer import Tokenizer

    Batch = dict[str, torch.Tensor]


_AT_ONCE = 32
"""Batches that are read in one go, at most."""
RANKS = ("distinct", "shared")


class StreamingDataset(MapStyle):
    """Map-style dataset over a split.

    `ds[i]` and `ds.__getitems__(indices)` give the windows at these positions of the current epoch.
    With a torch DataLoader of your own, pass `collate_fn=StreamingDataset.collate`. `reader` says in a
    line how the tokens are read, and why so.

    `labels` are shifted already: labels[:, t] is the token after input_ids[:, t], so that the loss is
    cross_entropy(logits.view(-1, vocab_size), labels.view(-1)). Models of transformers shift labels
    themselves: give them batches of `shift_labels=False`.

    Of `hf://...` the train split is streamed: that is a `HubStream`, whose loader has the same face.
    """

    def __new__(cls, source: Any = None, *args: Any, **options: Any) -> Any:
        split = args[0] if args else options.get("split", "train")
        if split == "train" and isinstance(source, str) and source.startswith(HUB):
            from data_loading.hub.open import open_stream

            return open_stream(source, *args, **options)
        return super().__new__(cls)

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
        tokenizer: str | Tokenizer | None = None,
        text_field: str | None = None,
        ranks: str = "distinct",
        shift_labels: bool = True,
        contiguous: bool = True,
    ) -> None:
        """source: tokens, or where they are: X.npy, X.txt with X.npy beside it, X, a URI; or prepared data,
        which are split already. val, test: what is held out of a set, as a fraction (float) or in tokens
        (int); val: None: as the set was made, or a tenth.

        order: shuffled, sequential, shuffled_blocks of `block_windows` neighbouring windows, or
        shuffled_shards, one file after the other, of each `shard_windows` at a time (None: all). windows: the
        kind of batches (`batches`): plain; shifted or streams, which need step_windows, those of a step over
        all ranks and micro-batches. stride: tokens from one window to the next; None: seq_len. shift: how
        many tokens after its input a label stands. documents: across: windows go over their borders; masked:
        with position_ids, cu_seqlens, and labels of -100 across borders; separate: so too, but each window
        holds whole documents, packed, and padding. That needs an index on disk, which is made once.

        reader: mmap, pread, memory, or auto, which looks at files, disk and cluster; the bytes are the same.
        max_resident_bytes: of what mmap adds to RSS. verify: set: checksums once, when a set is first
        opened; blocks: each block again before its first use in this process. tokenizer: of `hf://...`
        (gpt2); tokens have been made with one. text_field: of `hf://...`, that holds the text.

        ranks: distinct: each reads its own part of a step; shared: all read the same windows.

        shift_labels: False: labels[:, t] is the token at input_ids[:, t], as `model(**batch)` of transformers
        expects; the first label of each window, and of each document where borders count, is -100.
        contiguous: False: input_ids and labels may be views of one tensor, of which a GPU needs one copy.

        Raises:
            UserError: nothing there, it does not fit its text, or not one window in the split.
            NotTokenized: there is only the text.
        """
        options = BatchOptions(seq_len, windows, stride, shift, step_windows, documents)
        options.check()
        if not shift_labels and (shift != 1 or windows == "shifted"):
            raise UserError(
                "shift_labels=False: models of transformers shift labels by one token. Take shift=1, and "
                "windows='plain' or 'streams'",
                code="labels-not-shifted",
            )
        if type(seed) is not int or seed < 0:
            raise UserError(f"seed {seed!r}: expected a whole number, 0 or more", code="seed-invalid")
        data = source if isinstance(source, Data) else _open(source, val, test, tokenizer, text_field)
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
        self._reader, self.reader = token_set.open_reader(self._reader_options)
        self._batches.open(self._reader_options)

    @property
    def step_windows(self) -> int | None:
        """Of an optimizer step, which batches of all ranks must divide; None: they need not."""
        return self._batches.step_windows

    def __len__(self) -> int:
        """Windows in an epoch."""
        return self._batches.order.length

    @property
    def packing_efficiency(self) -> float | None:
        """The share of all windows' tokens that is no padding; None where windows are not packed."""
        windows = self._batches.windows
        return windows.efficiency if isinstance(windows, Packing) else None

    def window_at(self, positions: Sequence[int] | np.ndarray, epoch: int) -> np.ndarray:
        """Windows (int64) that stand at these positions of an epoch."""
        if isinstance(positions, range) and positions.step == 1:
            if positions and not 0 <= positions.start <= positions.stop <= len(self):
                raise IndexError(f"{positions} of {len(self)} windows")
            return self._batches.order.span(positions.start, positions.stop, epoch)
        wanted = np.asarray(positions, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"windows {wanted.min()} to {wanted.max()} of {len(self)}")
        return self._batches.order.at(wanted, epoch)

    def read_at(self, epoch: int, positions: Sequence[int] | np.ndarray) -> Batch:
        """The batch of these positions of an epoch; those of a range cost least."""
        if len(positions):
            self._reader.reached(epoch, int(positions[0]))
        batch = self._batches.read(self._reader, self.window_at(positions, epoch), epoch, positions)
        return batch if self.shift_labels else unshifted(batch)

    def at_once(self, batch_size: int) -> int:
        """How many batches of that size are best read in one go."""
        if not self._reader.is_here:
            return 1
        return max(1, min(_AT_ONCE, self._batches.at_once_tokens // (batch_size * self.seq_len)))

    def read_taken(self, taken: Taken) -> Iterator[Batch]:
        """A rank's batches, read in one gather when this returns."""
        self._reader.reached(taken.epoch, taken.first)
        windows = self.window_at(range(taken.first, taken.last), taken.epoch)
        if taken.world_size > 1:
            parts = windows.reshape(taken.batches, taken.world_size, taken.batch_size)
            windows = parts[:, taken.rank].ravel()
        batches = self._batches.read_each(self._reader, windows, taken.batch_size)
        return batches if self.shift_labels else map(unshifted, batches)

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        """The positions start to stop of an epoch are read soon: tell the kernel."""
        windows = self.window_at(range(start, stop), epoch)
        self._batches.will_need(self._reader, windows)

    def join(self, batches: Sequence[Batch]) -> Batch:
        """One batch of several, in their order."""
        return self._batches.join(batches)

    def interleave(self, batches: Sequence[Batch], rows: Sequence[np.ndarray]) -> Batch:
        """One batch of several: row k of batch i stands at rows[i][k] (int64)."""
        return self._batches.interleave(batches, rows)

    @property
    def kind(self) -> str:
        """Of its batches."""
        return self._batches.kind

    @property
    def form(self) -> str:
        """What batches have to share to be joined."""
        shared = ", shared by all ranks" if self.ranks == "shared" else ""
        labels = "" if self.shift_labels else ", labels not shifted"
        return f"{self.kind} windows of {self.seq_len}, shift {self._batches.windows.shift}{shared}{labels}"

    def __getstate__(self) -> dict[str, Any]:
        """Without the reader: a spawned worker maps the files itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_reader()


def _open(
    source: str | Path | Tokens,
    val: Share | None,
    test: Share,
    tokenizer: str | Tokenizer | None,
    text_field: str | None,
) -> Data:
    if isinstance(source, str) and source.startswith(HUB):
        from data_loading.hub.open import held_out_data, open_stream

        stream = open_stream(source, "val", val=val, test=test, tokenizer=tokenizer, text_field=text_field)
        return held_out_data(stream)
    for name, given in (("tokenizer", tokenizer), ("text_field", text_field)):
        if given is not None:
            raise UserError(
                f"{name}: {source} holds tokens already; a {name} is for hf://...", code="option-of-streams"
            )
    if isinstance(source, Tokens):
        return split_data(source, None, None, val, test)
    return open_for_reading(str(source), val, test)
