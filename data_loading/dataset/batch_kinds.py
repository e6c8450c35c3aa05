"""Kinds of batches: tensors that are made of windows, and the order in which a kind reads them.

All tensors are contiguous, unless they share one (`Plain.is_shared`).

`plain`: inputs and labels `(batch, seq_len)`, the labels `shift` tokens on. With masked documents there are
`position_ids` that restart at each document, `cu_seqlens`, and labels of -100 across borders. With separate
documents a row is whole documents and padding (`packing`).
`shifted`: a shift for each step, drawn from the proper divisors of seq_len; inputs and labels
`(batch, seq_len // shift, shift)`, the labels `shift` tokens on, and `shift`.
`streams`: row i of a step continues row i of the step before it, for models that carry a state from window to
window (truncated backpropagation through time); `reset` marks the rows that do not.

Rows and shifts belong to the step, which all ranks and micro-batches divide among them.
"""

from __future__ import annotations

import abc
import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from data_loading.dataset.document_starts import DocumentStarts
from data_loading.dataset.orders import Order, Sequential
from data_loading.dataset.protocol import IGNORED_LABEL
from data_loading.dataset.windows import Cut, Windows
from data_loading.readers.reader import Reader
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.readers.choose_reader import ReaderOptions

    Batch = dict[str, torch.Tensor]


log = logging.getLogger("data_loading")

Positions = Sequence[int] | np.ndarray
FROM_FIRST_ID = " from their first id"
"""Part of the name of batches whose documents begin with the id between them: they differ from others."""
NO_ROWS = ("cu_seqlens", "shift")
"""Entries of a batch that are not one value for each window."""


class Batches(abc.ABC):
    """Makes batches of windows."""

    kind: ClassVar[str]
    name = ""
    """Part of fingerprints; empty for the plain kind."""
    tokens_per_read = 0
    """Tokens best read together, if each batch is only its windows (`read_each`); 0: batch by batch."""
    step_windows: int | None = None
    """Windows of an optimizer step, which batches of all ranks must divide; None: any batch."""

    windows: Cut

    def __init__(self, windows: Cut, order: Order) -> None:
        self.windows, self.order = windows, order

    def open(self, options: ReaderOptions) -> None:  # noqa: B027 - most have nothing to open
        """Open what is read besides the tokens, in the same way; also in each process that is spawned."""

    def join(self, batches: Sequence[Batch]) -> Batch:
        """Return one batch of several, in their order; an entry that is one number is the same in all."""
        import torch

        return {
            name: torch.cat([batch[name] for batch in batches]) if first.dim() else first
            for name, first in batches[0].items()
        }

    def interleave(self, batches: Sequence[Batch], rows: Sequence[np.ndarray]) -> Batch:
        """Return one batch of several: row k of batch i becomes row rows[i][k] (int64), each row once.

        It uses NumPy: threads of torch wait for each other if the cores have other work.
        """
        import torch

        made = {}
        for name, first in batches[0].items():
            if not first.dim():
                made[name] = first
                continue
            values = np.empty((sum(map(len, rows)), *first.shape[1:]), first.numpy().dtype)
            for batch, places in zip(batches, rows, strict=True):
                values[places] = batch[name].numpy()
            made[name] = torch.from_numpy(values)
        return made

    @abc.abstractmethod
    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        """Return the batch of these windows (int64), which have these positions in an epoch."""

    def read_each(self, reader: Reader, windows: np.ndarray, batch_size: int) -> Iterator[Batch]:
        """Yield batches of `batch_size` windows, all of which are read when this returns."""
        raise NotImplementedError(f"{self.kind} batches are read one by one")

    @abc.abstractmethod
    def will_need(self, reader: Reader, windows: np.ndarray) -> None:
        """Hint that these windows (int64) are read soon."""


class WindowBatches(Batches):
    """Batches of windows of one width."""

    windows: Windows

    def will_need(self, reader: Reader, windows: np.ndarray) -> None:
        reader.will_need(self.windows.starts(windows), self.windows.width)


class DocumentBatches(Batches):
    """Batches whose documents are marked by position_ids and cu_seqlens."""

    def join(self, batches: Sequence[Batch]) -> Batch:
        return _with_borders(super().join([_without_borders(batch) for batch in batches]))

    def interleave(self, batches: Sequence[Batch], rows: Sequence[np.ndarray]) -> Batch:
        return _with_borders(super().interleave([_without_borders(batch) for batch in batches], rows))


def _without_borders(batch: Batch) -> Batch:
    return {name: values for name, values in batch.items() if name != "cu_seqlens"}


def _with_borders(batch: Batch) -> Batch:
    return {**batch, "cu_seqlens": cumulative_lengths((batch["position_ids"] == 0).numpy())}


class Plain(WindowBatches):
    """Inputs and labels of one gather."""

    kind = "plain"
    tokens_per_read = 1 << 19
    is_shared = False
    """True: inputs and labels are views of one tensor `(batch, seq_len + shift)`; a GPU gets one copy of it.
    False: each is contiguous. Casting the ids a second time costs less than copying a view."""

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        return next(self.read_each(reader, windows, max(1, len(windows))))

    def read_each(self, reader: Reader, windows: np.ndarray, batch_size: int) -> Iterator[Batch]:
        """Yield batches; ids become int64 when a batch is requested, so that they are in the CPU's cache."""
        import torch

        found = reader.gather(self.windows.starts(windows), self.windows.width)
        seq_len, shift = self.windows.seq_len, self.windows.shift

        def batches() -> Iterator[Batch]:
            for first in range(0, max(1, len(found)), batch_size):
                part = found[first : first + batch_size]
                if self.is_shared:
                    ids = torch.from_numpy(part.astype(np.int64))
                    yield {"input_ids": ids.narrow(1, 0, seq_len), "labels": ids.narrow(1, shift, seq_len)}
                    continue
                both = part[:, :seq_len], part[:, shift : shift + seq_len]
                inputs, labels = (torch.from_numpy(ids.astype(np.int64, "C")) for ids in both)
                yield {"input_ids": inputs, "labels": labels}

        return batches()


class Masked(WindowBatches, DocumentBatches):
    """Plain windows, with the borders of documents for an attention that does not look across them."""

    kind = "masked"
    name = "documents masked"

    def __init__(
        self, windows: Windows, order: Order, documents: DocumentStarts, *, is_before: bool = False
    ) -> None:
        """is_before: the id between documents is the first id of one, which makes other batches."""
        super().__init__(windows, order)
        self._documents = documents
        self.name += FROM_FIRST_ID if is_before else ""

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        starts, seq_len, shift = self.windows.starts(windows), self.windows.seq_len, self.windows.shift
        rows = reader.gather(starts, self.windows.width).astype(np.int64)
        marks = self._documents.marks(starts, rows)
        at = np.arange(self.windows.width)
        begins = np.maximum.accumulate(np.where(marks, at, 0), axis=1)
        labels = np.where(begins[:, shift:] == begins[:, :-shift], rows[:, shift:], IGNORED_LABEL)
        return {
            "input_ids": torch.from_numpy(np.ascontiguousarray(rows[:, :seq_len])),
            "labels": torch.from_numpy(labels),
            "position_ids": torch.from_numpy(at[:seq_len] - begins[:, :seq_len]),
            "cu_seqlens": cumulative_lengths(marks[:, :seq_len]),
        }


def cumulative_lengths(marks: np.ndarray) -> torch.Tensor:
    """Return the borders of documents in the flattened batch, int32 `(documents + 1,)`.

    It is the format of attention of variable length (flash_attn_varlen_func, cu_seqlens_q).
    """
    return borders_tensor(np.flatnonzero(marks), marks.size)


def borders_tensor(starts: np.ndarray, tokens: int) -> torch.Tensor:
    """Return the start of each document, and the end of the last one, int32."""
    import torch

    return torch.from_numpy(np.append(starts, tokens).astype(np.int32))


class Shifted(WindowBatches):
    """Batches with a shift for each step."""

    kind = "shifted"

    def __init__(self, windows: Windows, order: Order, step_windows: int, seed: int) -> None:
        """Leave out the windows at the end of an epoch that make no step: each step is of one epoch."""
        super().__init__(windows, WholeSteps(order, step_windows))
        self.step_windows, self._step, self._seed = step_windows, step_windows, seed
        self.divisors = proper_divisors(windows.seq_len)
        self.name = f"shifted, steps of {step_windows}, seed {seed}"
        _log_unread(len(windows), self.order.length, f"make no step of {step_windows:,}")

    def shift_of(self, step: int) -> int:
        """Return the shift of a step, which is counted from the start of the stream over all epochs."""
        digest = hashlib.sha256(f"{self._seed} {step} shift".encode()).digest()
        return self.divisors[int.from_bytes(digest[:8], "little") % len(self.divisors)]

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        """Return the batch, with the shift of the step of the first position."""
        import torch

        at = epoch * self.order.length + (int(positions[0]) if len(windows) else 0)
        step = at // self._step
        shift, seq_len = self.shift_of(step), self.windows.seq_len
        ids = torch.from_numpy(_gathered(reader, self.windows, windows, seq_len + shift))
        shape = (len(windows), seq_len // shift, shift)
        return {
            "input_ids": ids[:, :seq_len].reshape(shape).contiguous(),
            "labels": ids[:, shift:].reshape(shape).contiguous(),
            "shift": torch.tensor(shift),
        }


class Streams(Plain):
    """Batches of contiguous rows. Windows that fill no row are not read, and not in `order`."""

    kind = "streams"
    tokens_per_read = 0

    def __init__(self, windows: Windows, rows: int) -> None:
        self.step_windows = rows
        super().__init__(windows, Rows(len(windows), rows))
        self.name = f"{rows} streams"
        _log_unread(len(windows), self.order.length, f"fill no row of {rows:,} streams")

    def read(self, reader: Reader, windows: np.ndarray, epoch: int, positions: Positions) -> Batch:
        import torch

        batch = super().read(reader, windows, epoch, positions)
        starts = self.windows.starts(windows)
        before = self.windows.starts(np.maximum(windows - 1, 0)) + self.windows.stride
        begins = (np.asarray(positions) < self.step_windows) | (before != starts)
        return {**batch, "reset": torch.from_numpy(begins)}


class WholeSteps(Order):
    """Another order, with only whole steps in an epoch."""

    def __init__(self, order: Order, step_windows: int) -> None:
        super().__init__(order.n)
        self._order = order
        self._length = order.n // step_windows * step_windows

    @property
    def name(self) -> str:
        return self._order.name

    @property
    def length(self) -> int:
        return self._length

    def at(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        return self._order.at(positions, epoch)

    def span(self, start: int, stop: int, epoch: int) -> np.ndarray:
        return self._order.span(start, stop, epoch)

    def coming(self, position: int, epoch: int) -> Iterator[range]:
        return self._order.coming(position, epoch)


class Rows(Sequential):
    """Position p of an epoch is row p % rows of step p // rows; a row is consecutive windows."""

    def __init__(self, n: int, rows: int) -> None:
        if not 1 <= rows <= n:
            raise UserError(
                f"{rows:,} streams of {n:,} windows: expected 1 to {n:,}. Use a smaller batch, or a smaller "
                "seq_len",
                code="streams-too-many",
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
    """Return the proper divisors, ascending; [1] for 1, which has none."""
    return [d for d in range(1, number) if number % d == 0] or [1]


def _log_unread(windows: int, read: int, why: str) -> None:
    if read < windows:
        log.info("%s of %s windows %s and are not read", f"{windows - read:,}", f"{windows:,}", why)


def _gathered(reader: Reader, windows: Windows, numbers: np.ndarray, width: int) -> np.ndarray:
    return reader.gather(windows.starts(numbers), width).astype(np.int64)
