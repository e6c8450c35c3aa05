"""Batches of a StreamingDataset for one rank, with a state of three values.

The stream is one sequence of positions for all ranks together: global batch k takes the next
`batch_size * world_size` of them, rank r the r-th part of these. So the samples of a run do not
depend on how they are divided over ranks, micro-batches or worker processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from conf import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.streaming import StreamingDataset

    Batch = dict[str, torch.Tensor]

Span = tuple[int, int, int]
"""epoch, first position, position after the last."""


class Loader:
    """Iterate to get batches {"input_ids", "labels"}, int64 `(batch_size, seq_len)`.

    repeat=False: an iteration ends with the epoch, its last batch as small as what is left (nothing
    is dropped; a rank whose part is empty gets no batch); the next iteration is the next epoch.
    repeat=True: it never ends, and a batch may span two epochs. num_batches: an iteration ends after
    so many. num_workers: processes that read; by default none, since a gather costs less than
    passing a batch between processes.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        num_batches: int | None = None,
        repeat: bool = False,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: expected at least 1")
        if not 0 <= rank < world_size:
            raise UserError(f"rank {rank} of {world_size}: ranks count from 0")
        self.dataset, self.batch_size = dataset, batch_size
        self.rank, self.world_size = rank, world_size
        self.num_workers, self.num_batches, self.repeat = num_workers, num_batches, repeat
        self._epoch, self._samples = dataset.epoch, 0
        self._epoch_seen = dataset.epoch

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches of a whole iteration from the start of an epoch."""
        if self.num_batches is not None:
            return self.num_batches
        if self.repeat:
            raise TypeError("a repeating loader has no length")
        return -(-len(self.dataset) // self.global_batch)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: samples counts windows of all ranks read in this epoch."""
        return {"epoch": self._epoch, "samples": self._samples, "fingerprint": self.dataset.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; ranks, batch size and workers may be others than they were.

        Raises:
            UserError: the state is of another set, split, window length, order or seed.
        """
        if state["fingerprint"] != self.dataset.fingerprint:
            raise UserError(
                f"the checkpoint read other data: it is at [{state['fingerprint']}], this run reads "
                f"[{self.dataset.fingerprint}]. Bring the same token files and options back, or start a "
                "new run"
            )
        self._epoch, self._samples = int(state["epoch"]), int(state["samples"])
        self._epoch_seen = self.dataset.epoch

    def __iter__(self) -> Iterator[Batch]:
        if self.dataset.epoch != self._epoch_seen:
            self._epoch_seen = self.dataset.epoch
            if self._epoch != self.dataset.epoch:
                self._epoch, self._samples = self.dataset.epoch, 0
        if self._samples >= len(self.dataset):
            self._epoch, self._samples = self._epoch + 1, 0
        # Workers read ahead; the state counts what was handed out.
        spans, ahead = itertools.tee(self._global_spans())
        for global_batch, batch in zip(spans, self._read(map(self._parts, ahead)), strict=True):
            self._epoch, _, self._samples = global_batch[-1]
            if batch:
                yield batch

    def _global_spans(self) -> Iterator[list[Span]]:
        """What each global batch covers: one span, or more where it goes over the end of an epoch."""
        epoch, position, size = self._epoch, self._samples, len(self.dataset)
        count = 0
        while self.num_batches is None or count < self.num_batches:
            spans, wanted = [], self.global_batch
            while wanted:
                if position == size:
                    if not self.repeat:
                        break
                    epoch, position = epoch + 1, 0
                taken = min(wanted, size - position)
                spans.append((epoch, position, position + taken))
                position, wanted = position + taken, wanted - taken
            if not spans:
                return
            yield spans
            count += 1

    def _parts(self, spans: list[Span]) -> list[Span]:
        """This rank's part of a global batch."""
        skip, wanted, parts = self.rank * self.batch_size, self.batch_size, []
        for epoch, start, stop in spans:
            first = min(start + skip, stop)
            last = min(first + wanted, stop)
            skip -= first - start
            wanted -= last - first
            if last > first:
                parts.append((epoch, first, last))
        return parts

    def _read(self, parts: Iterable[list[Span]]) -> Iterator[Batch]:
        if self.num_workers == 0:
            return (read_spans(self.dataset, spans) for spans in parts)
        import torch

        spans: Any = _Spans(self.dataset)
        return iter(
            torch.utils.data.DataLoader(spans, batch_size=None, sampler=parts, num_workers=self.num_workers)
        )


class _Spans:
    """What a worker process of torch's DataLoader is asked for: a list of spans, for one batch."""

    def __init__(self, dataset: StreamingDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, spans: list[Span]) -> Batch:
        return read_spans(self._dataset, spans)


def read_spans(dataset: StreamingDataset, spans: list[Span]) -> Batch:
    """One batch of the windows at these positions; empty where there are none."""
    windows = [dataset.window_at(range(start, stop), epoch) for epoch, start, stop in spans]
    if not windows:
        return {}
    return dataset.gather(windows[0] if len(windows) == 1 else np.concatenate(windows))
