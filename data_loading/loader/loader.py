"""The loader of datasets that are read by position.

The stream is one sequence of positions for all ranks together: global batch k takes the next
`batch_size * world_size` of them, rank r the r-th part of these. So the samples of a run do not
depend on how they are divided over ranks or micro-batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from data_loading.dataset.protocol import RankBatches, Span, read_spans
from data_loading.loader.base import RankLoader, pinned
from data_loading.loader.prefetch import Prefetch
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.dataset.protocol import ReadableDataset

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("data_loading")


class Loader(RankLoader["ReadableDataset"]):
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    Options are those of `RankLoader`.

    tail: windows at the end of an epoch that make no whole batch for all ranks. keep: the last batch is as
    small as what is left (a rank whose part is empty gets none), or continues in the next epoch if the loader
    repeats. drop: they are not read, and a log line says how many. pad: the batch is filled with the first
    windows of the epoch, whose labels are all -100: each window counts once.

    If the dataset's ranks are shared, every rank reads all of a global batch of batch_size windows.

    The next iteration continues one that was left early, unless `dataset.set_epoch` is called.
    """

    tails = ("keep", "drop", "pad")

    def __init__(self, dataset: ReadableDataset, batch_size: int, *args: Any, **options: Any) -> None:
        super().__init__(dataset, batch_size, *args, **options)
        if dataset.ranks == "shared":
            self.rank, self.world_size = 0, 1
        self._check_size()

    def _check_size(self) -> None:
        """Check that batches of all ranks fit the windows of an epoch; log what is not read."""
        windows, step = len(self.dataset), self.dataset.step_windows
        left = windows % self.global_batch
        if step is not None and step % self.global_batch:
            raise UserError(
                f"batches of {self.global_batch:,} windows over all ranks do not divide a step of {step:,}. "
                "Use a batch_size that does, or step_windows that are a multiple of it",
                code="batch-not-divisor-of-step",
            )
        if self.tail == "drop" and left == windows:
            raise UserError(
                f"tail 'drop': the {left:,} windows of an epoch make no batch of {self.global_batch:,}. Use "
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
        """Windows of a batch of all ranks."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Return the batches of a whole iteration from the start of an epoch."""
        if self.repeat:
            if self.num_batches is None:
                raise TypeError("a repeating loader has no length")
            return self.num_batches
        whole, left = divmod(len(self.dataset), self.global_batch)
        batches = whole + (left > 0 and self.tail != "drop")
        return batches if self.num_batches is None else min(batches, self.num_batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream: samples counts windows of all ranks read in this epoch."""
        return {
            "epoch": self._epoch,
            "samples": self._samples,
            "fingerprint": self.dataset.fingerprint,
            "tail": self.tail,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; ranks and batch size can differ from what they were.

        Raises:
            UserError: the state is of another set, split, window length, order, seed or tail.
        """
        epoch, samples = self._position_in(state)
        if samples > len(self.dataset):
            raise self._damaged(f"epoch {epoch:,}, {samples:,} windows read of {len(self.dataset):,}")
        if self.dataset.step_windows is not None and samples % self.global_batch:
            raise UserError(
                f"the state is after {samples:,} windows, inside a step: batches of {self.global_batch:,} "
                "over all ranks cannot continue there. Use the batch that it was read with",
                code="state-inside-step",
            )
        self._resume(epoch, samples)

    def __iter__(self) -> Iterator[Batch]:
        requested = self._requested_epoch()
        if requested is not None:
            self._epoch, self._samples = requested, 0
        if self._is_over(self._samples):
            self._epoch, self._samples = self._epoch + 1, 0
        for batch in self._read():
            if batch:
                yield pinned(batch) if self.pin_memory else batch

    def _read(self) -> Iterator[Batch]:
        """Read several batches together from memory; from a disk one by one, with hints for the next ones."""
        dataset, size = self.dataset, self.global_batch
        prefetch, most, count = Prefetch(dataset), dataset.batches_per_read(self.batch_size), 0
        epoch, position = self._epoch, self._samples
        while self.num_batches is None or count < self.num_batches:
            left = most if self.num_batches is None else min(most, self.num_batches - count)
            batches = min(left, (len(dataset) - position) // size)
            if batches > 1 and not prefetch.is_cold:
                part = RankBatches(epoch, position, batches, self.batch_size, self.rank, self.world_size)
                windows = batches * self.batch_size
                read = prefetch.timed(partial(dataset.read_batches, part), windows, windows * dataset.seq_len)
                for batch in read:
                    position += size
                    self._epoch, self._samples = epoch, position
                    yield batch
                count += batches
                continue
            if prefetch.is_cold:
                prefetch.hint(partial(self._coming, epoch, position, count))
            spans = next(self._global_spans(epoch, position, count), None)
            if spans is None:
                return
            parts = self._parts(spans)
            windows = sum(part.last - part.first for part in parts)
            batch = prefetch.timed(partial(read_spans, dataset, parts), windows, windows * dataset.seq_len)
            epoch, position = _end(spans)
            self._epoch, self._samples = epoch, position
            count += 1
            yield batch

    def _coming(self, epoch: int, position: int, count: int) -> Iterator[list[Span]]:
        return map(self._parts, self._global_spans(epoch, position, count))

    def _is_over(self, position: int) -> bool:
        """Return whether an epoch has no further batch after this many positions."""
        left = len(self.dataset) - position
        return left < self.global_batch if self.tail == "drop" else left <= 0

    def _global_spans(self, epoch: int, position: int, count: int) -> Iterator[list[Span]]:
        """Yield the spans of each global batch from there on: one, or more if it crosses the end of an epoch.

        count: batches that were read before.
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
        """Return this rank's part of a global batch."""
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
    """Return the epoch and position after a global batch."""
    last = next(span for span in reversed(spans) if span.counts)
    return last.epoch, last.last
