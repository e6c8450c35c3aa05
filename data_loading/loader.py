"""Batches of a dataset for one rank, with a state of three values.

The stream is one sequence of positions for all ranks together: global batch k takes the next
`batch_size * world_size` of them, rank r the r-th part of these. So the samples of a run do not
depend on how they are divided over ranks or micro-batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from data_loading.rank_loader import RankLoader, pinned
from data_loading.read_ahead import ReadAhead
from data_loading.spans import Span, Taken, read_spans
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.positioned import Positioned

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("data_loading")


class Loader(RankLoader["Positioned"]):
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    repeat=False: an iteration ends with the epoch, the next one is the next epoch. repeat=True: it never
    ends. num_batches: it ends after so many.

    tail: what becomes of the windows at the end of an epoch that make no whole batch for all ranks. keep:
    the last batch is as small as what is left (a rank whose part is empty gets none), or goes on in the
    next epoch where the loader repeats. drop: they are not read, and a line says how many. pad: the batch
    is filled with the first windows of the epoch, whose labels are all -100: each window counts once.

    Where the dataset's ranks are shared, every rank reads all of a global batch, which is then of batch_size
    windows.

    An iteration that was left early is gone on with by the next one, but for `dataset.set_epoch`.

    pin_memory: batches are in page-locked memory, for a GPU.
    """

    tails = ("keep", "drop", "pad")

    def __init__(self, dataset: Positioned, batch_size: int, *args: Any, **options: Any) -> None:
        super().__init__(dataset, batch_size, *args, **options)
        if dataset.ranks == "shared":
            self.rank, self.world_size = 0, 1
        self._check_size()

    def _check_size(self) -> None:
        """Whether batches of all ranks go with the windows of an epoch; tells what is not read."""
        windows, step = len(self.dataset), self.dataset.step_windows
        left = windows % self.global_batch
        if step is not None and step % self.global_batch:
            raise UserError(
                f"batches of {self.global_batch:,} windows over all ranks do not divide a step of {step:,}. "
                "Take a batch_size that does, or step_windows that are a multiple of it",
                code="batch-not-divisor-of-step",
            )
        if self.tail == "drop" and left == windows:
            raise UserError(
                f"tail 'drop': the {left:,} windows of an epoch make no batch of {self.global_batch:,}. Take "
                "a smaller batch, or tail 'keep' or 'pad'",
                code="drop-leaves-nothing",
            )
        reading = -(-windows // self.batch_size)
        if reading < self.world_size and self.tail == "keep" and not self.repeat:
            raise UserError(
                f"{windows:,} windows in batches of {self.batch_size:,} are read by {reading:,} of "
                f"{self.world_size:,} ranks, the others would read nothing. Use fewer ranks, a smaller batch "
                "or seq_len, more text, or tail 'pad'",
                code="ranks-without-windows",
            )
        if self.tail == "drop" and left:
            log.info("%s of %s windows are dropped at the end of each epoch", f"{left:,}", f"{windows:,}")

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches of a whole iteration from the start of an epoch."""
        if self.repeat:
            if self.num_batches is None:
                raise TypeError("a repeating loader has no length")
            return self.num_batches
        whole, left = divmod(len(self.dataset), self.global_batch)
        batches = whole + (left > 0 and self.tail != "drop")
        return batches if self.num_batches is None else min(batches, self.num_batches)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: samples counts windows of all ranks read in this epoch."""
        return {
            "epoch": self._epoch,
            "samples": self._samples,
            "fingerprint": self.dataset.fingerprint,
            "tail": self.tail,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there; ranks and batch size may differ from what they were.

        Raises:
            UserError: the state is of another set, split, window length, order, seed or tail, or none.
        """
        epoch, samples = self._place(state)
        if samples > len(self.dataset):
            raise self._damaged(f"epoch {epoch:,}, {samples:,} windows read of {len(self.dataset):,}")
        if self.dataset.step_windows is not None and samples % self.global_batch:
            raise UserError(
                f"the state stands after {samples:,} windows, inside a step: batches of "
                f"{self.global_batch:,} over all ranks do not go on from there. Take the batch that it was "
                "read with",
                code="state-inside-step",
            )
        self._resume(epoch, samples)

    def __iter__(self) -> Iterator[Batch]:
        asked = self._asked_epoch()
        if asked is not None:
            self._epoch, self._samples = asked, 0
        if self._is_over(self._samples):
            self._epoch, self._samples = self._epoch + 1, 0
        for batch in self._read():
            if batch:
                yield pinned(batch) if self.pin_memory else batch

    def _read(self) -> Iterator[Batch]:
        """Several batches at once from memory; from a disk one by one, with those to come told of."""
        dataset, size = self.dataset, self.global_batch
        ahead, at_once, count = ReadAhead(dataset), dataset.at_once(self.batch_size), 0
        epoch, position = self._epoch, self._samples
        while self.num_batches is None or count < self.num_batches:
            left = at_once if self.num_batches is None else min(at_once, self.num_batches - count)
            batches = min(left, (len(dataset) - position) // size)
            if batches > 1 and not ahead.is_cold:
                taken = Taken(epoch, position, batches, self.batch_size, self.rank, self.world_size)
                tokens = batches * self.batch_size * dataset.seq_len
                read = ahead.timed(partial(dataset.read_taken, taken), batches * self.batch_size, tokens)
                for batch in read:
                    position += size
                    self._epoch, self._samples = epoch, position
                    yield batch
                count += batches
                continue
            if ahead.is_cold:
                ahead.tell(partial(self._coming, epoch, position, count))
            spans = next(self._global_spans(epoch, position, count), None)
            if spans is None:
                return
            parts = self._parts(spans)
            windows = sum(part.last - part.first for part in parts)
            batch = ahead.timed(partial(read_spans, dataset, parts), windows, windows * dataset.seq_len)
            epoch, position = _end(spans)
            self._epoch, self._samples = epoch, position
            count += 1
            yield batch

    def _coming(self, epoch: int, position: int, count: int) -> Iterator[list[Span]]:
        return map(self._parts, self._global_spans(epoch, position, count))

    def _is_over(self, position: int) -> bool:
        """Whether an epoch has no further batch after this many positions."""
        left = len(self.dataset) - position
        return left < self.global_batch if self.tail == "drop" else left <= 0

    def _global_spans(self, epoch: int, position: int, count: int) -> Iterator[list[Span]]:
        """What each global batch covers from there on, of which so many were read: one span, or more where it
        goes over the end of an epoch.
        """
        while self.num_batches is None or count < self.num_batches:
            if self._is_over(position):
                if not self.repeat:
                    return
                epoch, position = epoch + 1, 0
            spans = self._batch_from(epoch, position)
            yield spans
            count += 1
            epoch, position = _end(spans)

    def _batch_from(self, epoch: int, position: int) -> list[Span]:
        size, wanted = len(self.dataset), self.global_batch
        spans = []
        while wanted:
            last = min(position + wanted, size)
            spans.append(Span(epoch, position, last))
            wanted -= last - position
            if wanted and self.tail == "pad":
                filled = [Span(epoch, 0, min(size, wanted - done), False) for done in range(0, wanted, size)]
                return [*spans, *filled]
            if not self.repeat:
                break
            epoch, position = epoch + 1, 0
        return spans

    def _parts(self, spans: list[Span]) -> list[Span]:
        """This rank's part of a global batch."""
        skip, wanted, parts = self.rank * self.batch_size, self.batch_size, []
        for span in spans:
            first = min(span.first + skip, span.last)
            last = min(first + wanted, span.last)
            skip -= first - span.first
            wanted -= last - first
            if last > first:
                parts.append(span._replace(first=first, last=last))
        return parts


def _end(spans: list[Span]) -> tuple[int, int]:
    """Epoch and position where the stream stands behind a global batch."""
    last = next(span for span in reversed(spans) if span.counts)
    return last.epoch, last.last
