"""Kinds of batches: what is made of windows, and in which order a kind has to read them.

`plain`: inputs and labels `(batch, seq_len)`, the labels `shift` tokens on; where documents are masked, with
`position_ids` that begin anew with each document, `cu_seqlens`, and labels of -100 across their borders.
`shifted`: for each step a shift of its own, drawn from the proper divisors of seq_len; inputs and labels
`(batch, seq_len // shift, shift)`, the labels `shift` tokens on, and `shift`.
`streams`: row i of a step goes on where row i of the step before it ended, for models that carry a state
from window to window (truncated backpropagation through time); `reset` says which rows do not.

Rows and shifts belong to the step, which all ranks and micro-batches divide among them.
"""

from __future__ import annotations

import abc
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from conf import UserError
from conf.schema import Dataset
from data_loading.documents import DocumentStarts
from data_loading.orders import Order, Sequential, order_of
from data_loading.readers.reader import Reader
from data_loading.spans import IGNORED_LABEL
from data_loading.windows import Windows

if TYPE_CHECKING:
    import torch

    from data_loading.data import Data

    Batch = dict[str, torch.Tensor]


log = logging.getLogger("data_loading")

Positions = Sequence[int] | np.ndarray
KINDS = ("plain", "shifted", "streams")
DOCUMENTS = ("across", "masked")


class Batches(abc.ABC):
    """Makes batches of windows. name: for fingerprints; empty for the plain kind."""

    kind: ClassVar[str]
    name = ""

    def __init__(self, windows: Windows, order: Order) -> None:
        self.windows, self.order = windows, order

    @property
    def width(self) -> int:
        """Tokens that are read of a window."""
        return self.windows.width

    def join(self, batches: Sequence[Batch]) -> Batch:
        """One batch of several, in their order; what is one number is the same in all."""
        import torch

        return {
            name: torch.cat([batch[name] for batch in batches]) if first.dim() else first
            for name, first in batches[0].items()
        }

    @abc.abstractmethod
    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        """The batch of these windows (int64), which stand at these positions of an epoch."""


class Plain(Batches):
    """One tensor read, inputs and labels are views of it."""

    kind = "plain"

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        ids = torch.from_numpy(_gathered(reader, self.windows, windows, self.width))
        return {"input_ids": ids[:, : self.windows.seq_len], "labels": ids[:, self.windows.shift :]}


class Masked(Batches):
    """Plain windows, with what an attention needs that does not look across the borders of documents."""

    kind = "masked"
    name = "documents masked"

    def __init__(self, windows: Windows, order: Order, documents: DocumentStarts) -> None:
        super().__init__(windows, order)
        self._documents = documents

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        starts, seq_len, shift = self.windows.starts(windows), self.windows.seq_len, self.windows.shift
        rows = reader.gather(starts, self.width).astype(np.int64)
        marks = self._documents.marks(starts, rows)
        at = np.arange(self.width)
        begins = np.maximum.accumulate(np.where(marks, at, 0), axis=1)
        labels = np.where(begins[:, shift:] == begins[:, :-shift], rows[:, shift:], IGNORED_LABEL)
        ids = torch.from_numpy(rows)
        return {
            "input_ids": ids[:, :seq_len],
            "labels": torch.from_numpy(labels),
            "position_ids": torch.from_numpy((at - begins)[:, :seq_len]),
            "cu_seqlens": cumulative_lengths(marks[:, :seq_len]),
        }

    def join(self, batches: Sequence[Batch]) -> Batch:
        joined = super().join([{k: v for k, v in batch.items() if k != "cu_seqlens"} for batch in batches])
        return {**joined, "cu_seqlens": cumulative_lengths((joined["position_ids"] == 0).numpy())}


def cumulative_lengths(marks: np.ndarray) -> torch.Tensor:
    """Borders of documents in the flattened batch, int32 `(documents + 1,)`, as attention of variable
    length takes them (flash_attn_varlen_func, cu_seqlens_q).
    """
    import torch

    borders = np.append(np.flatnonzero(marks), marks.size)
    return torch.from_numpy(borders.astype(np.int32))


class Shifted(Batches):
    """A shift a step, the same for all that belongs to it."""

    kind = "shifted"

    def __init__(self, windows: Windows, order: Order, step_windows: int, seed: int) -> None:
        super().__init__(windows, order)
        self.step_windows, self._seed = step_windows, seed
        self.divisors = proper_divisors(windows.seq_len)
        self.name = f"shifted, steps of {step_windows}, seed {seed}"

    def shift_of(self, step: int) -> int:
        """Drawn for a step, counted from the start of the stream over all epochs."""
        digest = hashlib.sha256(f"{self._seed} {step} shift".encode()).digest()
        return self.divisors[int.from_bytes(digest[:8], "little") % len(self.divisors)]

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        """The shift is that of the step of the first position.

        Raises:
            UserError: a range of positions goes on in the next step.
        """
        import torch

        at = epoch * self.order.length + (int(positions[0]) if len(windows) else 0)
        step, last = at // self.step_windows, (at + max(len(windows) - 1, 0)) // self.step_windows
        if last != step and isinstance(positions, range):
            raise UserError(
                f"windows {at:,} to {at + len(windows):,} of the stream belong to the steps {step:,} and "
                f"{last:,} of {self.step_windows:,} windows: batches of all ranks must divide a step"
            )
        shift, seq_len = self.shift_of(step), self.windows.seq_len
        ids = torch.from_numpy(_gathered(reader, self.windows, windows, seq_len + shift))
        shape = (len(windows), seq_len // shift, shift)
        return {
            "input_ids": ids[:, :seq_len].reshape(shape),
            "labels": ids[:, shift:].reshape(shape),
            "shift": torch.tensor(shift),
        }


class Streams(Plain):
    """Contiguous rows. Windows that fill no row are not read; `order` has only the others."""

    kind = "streams"

    def __init__(self, windows: Windows, rows: int) -> None:
        self._rows = rows
        super().__init__(windows, Rows(len(windows), rows))
        self.name = f"{rows} streams"
        unread = len(windows) - self.order.length
        if unread:
            log.info(
                "%s of %s windows fill no row of %s streams and are not read",
                f"{unread:,}", f"{len(windows):,}", f"{rows:,}",
            )  # fmt: skip

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        batch = super().read(reader, windows, epoch, positions)
        starts = self.windows.starts(windows)
        before = self.windows.starts(np.maximum(windows - 1, 0)) + self.windows.stride
        begins = (np.asarray(positions) < self._rows) | (before != starts)
        return {**batch, "reset": torch.from_numpy(begins)}


@dataclass(frozen=True)
class BatchOptions:
    """What a batch is: its kind, and the windows that it is made of.

    stride: None: seq_len. step_windows: of all ranks and micro-batches of an optimizer step; kinds that
    are not plain need it. documents: across or masked.
    """

    seq_len: int
    kind: str = "plain"
    stride: int | None = None
    shift: int = 1
    step_windows: int | None = None
    documents: str = "across"

    @classmethod
    def of(cls, dataset: Dataset, seq_len: int, step_windows: int) -> BatchOptions:
        """Those of a configuration."""
        return cls(seq_len, dataset.windows, dataset.stride, dataset.shift, step_windows, dataset.documents)

    def check(self) -> None:
        """Raises UserError: a value out of range, or one that does not go with the kind."""
        if self.kind not in KINDS:
            raise UserError(f"windows {self.kind!r}: choices are {', '.join(KINDS)}")
        if self.documents not in DOCUMENTS:
            raise UserError(f"documents {self.documents!r}: choices are {', '.join(DOCUMENTS)}")
        for name in ("seq_len", "stride", "shift", "step_windows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} {value}: expected at least 1")
        if self.kind == "plain":
            return
        if self.step_windows is None:
            raise UserError(f"windows={self.kind} needs step_windows, the windows of a step over all ranks")
        if self.documents != "across":
            raise UserError(f"documents={self.documents} goes with windows=plain, not {self.kind}")
        if self.stride not in (None, self.seq_len) or self.shift != 1:
            raise UserError(
                f"windows={self.kind} has stride and shift of its own. Take stride and shift away"
            )

    def windows(self, ranges: Sequence[range]) -> Windows:
        """All that lie in these ranges."""
        shift = proper_divisors(self.seq_len)[-1] if self.kind == "shifted" else self.shift
        return Windows(ranges, self.seq_len, self.stride, shift)

    def count(self, ranges: Sequence[range]) -> int:
        """Positions in an epoch."""
        windows = len(self.windows(ranges))
        if self.kind == "streams" and self.step_windows is not None:
            return windows // self.step_windows * self.step_windows
        return windows

    def batches(
        self,
        data: Data,
        split: str,
        order: str,
        seed: int,
        block_windows: int,
        shard_windows: int | None = None,
    ) -> Batches:
        """Raises UserError: windows of another number than the kind needs, or an unknown order."""
        token_set, ranges = data.ranges_of(split)
        windows = self.windows(ranges)
        if self.kind == "streams":
            if order in ("shuffled_blocks", "shuffled_shards"):
                raise UserError(f"windows=streams are read in rows. Take order={order} away")
            return Streams(windows, self.step_windows or 1)
        borders = windows.before(np.array(token_set.file_borders))
        ordered = order_of(order, len(windows), seed, block_windows, borders, shard_windows)
        if self.kind == "shifted":
            return Shifted(windows, ordered, self.step_windows or 1, seed)
        if self.documents == "masked":
            return Masked(windows, ordered, DocumentStarts(token_set, data.eot_id))
        return Plain(windows, ordered)


class Rows(Sequential):
    """Position p of an epoch is row p % rows of step p // rows; a row is windows that follow each other."""

    def __init__(self, n: int, rows: int) -> None:
        if not 1 <= rows <= n:
            raise UserError(
                f"{rows:,} streams of {n:,} windows: expected 1 to {n:,}. Take a smaller batch, or a smaller "
                "seq_len"
            )
        super().__init__(n)
        self.rows, self._steps = rows, n // rows

    name = "in rows"

    def coming(self, position: int, epoch: int) -> Iterator[range]:
        yield range(self.n)

    @property
    def length(self) -> int:
        return self.rows * self._steps

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        step, row = np.divmod(positions, self.rows)
        windows: np.ndarray = row * self._steps + step
        return windows


def proper_divisors(number: int) -> list[int]:
    """Ascending, without the number itself; [1] for 1, which has none."""
    return [d for d in range(1, number) if number % d == 0] or [1]


def _gathered(reader: Reader, windows: Windows, numbers: np.ndarray, width: int) -> np.ndarray:
    return reader.gather(windows.starts(numbers), width).astype(np.int64)
