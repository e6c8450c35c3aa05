"""Batches of a dataset for one rank, with a state of three values.

The stream is one sequence of positions for all ranks together: global batch k takes the next
`batch_size * world_size` of them, rank r the r-th part of these. So the samples of a run do not
depend on how they are divided over ranks, micro-batches or worker processes.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from conf import UserError
from data_loading.read_ahead import read_with_ahead
from data_loading.spans import Span
from data_loading.storages import check_pinnable, pinned
from data_loading.workers import read_with_workers

if TYPE_CHECKING:
    import torch

    from data_loading.positioned import Positioned

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("data_loading")

TAILS = ("keep", "drop", "pad")


class Loader:
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    repeat=False: an iteration ends with the epoch, the next one is the next epoch. repeat=True: it never
    ends. num_batches: it ends after so many.

    tail: what becomes of the windows at the end of an epoch that make no whole batch for all ranks. keep:
    the last batch is as small as what is left (a rank whose part is empty gets none), or goes on in the
    next epoch where the loader repeats. drop: they are not read, and a line says how many. pad: the batch
    is filled with the first windows of the epoch, whose labels are all -100: each window counts once.

    shared: every rank reads all of a global batch, which is then of batch_size windows.

    num_workers: processes that read, forks of this one; by default none, since a gather costs less than
    passing a batch between processes. pin_memory: batches lie in page-locked memory, for a GPU.
    """

    def __init__(
        self,
        dataset: Positioned,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        num_batches: int | None = None,
        repeat: bool = False,
        tail: str = "keep",
        pin_memory: bool = False,
        shared: bool = False,
    ) -> None:
        _check(batch_size, rank, world_size, num_workers, num_batches, tail)
        if pin_memory:
            check_pinnable()
        self.dataset, self.batch_size = dataset, batch_size
        self.rank, self.world_size = (0, 1) if shared else (rank, world_size)
        self.num_workers, self.num_batches, self.repeat = num_workers, num_batches, repeat
        self.tail, self.pin_memory = tail, pin_memory
        self._epoch, self._samples = dataset.epoch, 0
        self._epoch_seen = dataset.epoch
        self._check_size()

    def _check_size(self) -> None:
        """Whether batches of all ranks go with the windows of an epoch; tells what is not read."""
        windows, step = len(self.dataset), self.dataset.step_windows
        left = windows % self.global_batch
        if step is not None and step % self.global_batch:
            raise UserError(
                f"batches of {self.global_batch:,} windows over all ranks do not divide a step of {step:,}. "
                "Take a batch_size that does, or step_windows that are a multiple of it"
            )
        if self.tail == "drop" and left == windows:
            raise UserError(
                f"tail 'drop': the {left:,} windows of an epoch make no batch of {self.global_batch:,}. Take "
                "a smaller batch, or tail 'keep' or 'pad'"
            )
        reading = -(-windows // self.batch_size)
        if reading < self.world_size and self.tail == "keep" and not self.repeat:
            raise UserError(
                f"{windows:,} windows in batches of {self.batch_size:,} are read by {reading:,} of "
                f"{self.world_size:,} ranks, the others would read nothing. Use fewer ranks, a smaller batch "
                "or seq_len, more text, or tail 'pad'"
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
        return {"epoch": self._epoch, "samples": self._samples, "fingerprint": self.dataset.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; ranks, batch size and workers may be others than they were.

        Raises:
            UserError: the state is of another set, split, window length, order or seed, or it is none.
        """
        if {"epoch", "samples", "fingerprint"} - state.keys():
            raise UserError(
                f"{dict(state)!r} is no state of a loader: expected epoch, samples and fingerprint, as "
                "state_dict() gives them"
            )
        if state["fingerprint"] != self.dataset.fingerprint:
            raise UserError(
                f"the checkpoint read other data: it is at [{state['fingerprint']}], this run reads "
                f"[{self.dataset.fingerprint}]. Bring the same token files and options back, or start a "
                "new run"
            )
        epoch, samples = int(state["epoch"]), int(state["samples"])
        if epoch < 0 or not 0 <= samples <= len(self.dataset):
            raise UserError(
                f"the state is damaged: epoch {epoch:,}, {samples:,} windows read of {len(self.dataset):,}. "
                "Go on from another checkpoint"
            )
        if self.dataset.step_windows is not None and samples % self.global_batch:
            raise UserError(
                f"the state stands after {samples:,} windows, inside a step: batches of "
                f"{self.global_batch:,} over all ranks do not go on from there. Take the batch that it was "
                "read with"
            )
        self._epoch, self._samples = epoch, samples
        self._epoch_seen = self.dataset.epoch

    def __iter__(self) -> Iterator[Batch]:
        if self.dataset.epoch != self._epoch_seen:
            self._epoch_seen = self.dataset.epoch
            if self._epoch != self.dataset.epoch:
                self._epoch, self._samples = self.dataset.epoch, 0
        if self._is_over(self._samples):
            self._epoch, self._samples = self._epoch + 1, 0
        # Workers read ahead; the state counts what was handed out.
        spans, ahead = itertools.tee(self._global_spans())
        for global_batch, batch in zip(spans, self._read(map(self._parts, ahead)), strict=True):
            self._epoch, _, self._samples, _ = next(span for span in reversed(global_batch) if span.counts)
            if batch:
                yield pinned(batch) if self.pin_memory else batch

    def _is_over(self, position: int) -> bool:
        """Whether an epoch has no further batch after this many positions."""
        left = len(self.dataset) - position
        return left < self.global_batch if self.tail == "drop" else left <= 0

    def _global_spans(self) -> Iterator[list[Span]]:
        """What each global batch covers: one span, or more where it goes over the end of an epoch."""
        epoch, position, count = self._epoch, self._samples, 0
        while self.num_batches is None or count < self.num_batches:
            if self._is_over(position):
                if not self.repeat:
                    return
                epoch, position = epoch + 1, 0
            spans = self._batch_from(epoch, position)
            yield spans
            count += 1
            epoch, _, position, _ = next(span for span in reversed(spans) if span.counts)

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

    def _read(self, parts: Iterable[list[Span]]) -> Iterator[Batch]:
        if self.num_workers == 0:
            return read_with_ahead(self.dataset, parts)
        return read_with_workers(self.dataset, parts, self.num_workers)


def _check(
    batch_size: int, rank: int, world_size: int, num_workers: int, num_batches: int | None, tail: str
) -> None:
    """Raises UserError: a value out of range."""
    if tail not in TAILS:
        raise UserError(f"tail {tail!r}: choices are {', '.join(TAILS)}")
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: expected at least 1")
    if num_workers < 0:
        raise UserError(f"num_workers {num_workers}: expected at least 0")
    if num_batches is not None and num_batches < 0:
        raise UserError(f"num_batches {num_batches}: expected at least 0")
    if not 0 <= rank < world_size:
        raise UserError(f"rank {rank} of {world_size}: ranks count from 0")
