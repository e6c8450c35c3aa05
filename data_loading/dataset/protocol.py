"""Interface of a dataset that a loader reads: samples at the positions 0, 1, 2 ... of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

IGNORED_LABEL = -100
"""Label that has no loss: torch's default (torch.nn.CrossEntropyLoss, ignore_index)."""


class Span(NamedTuple):
    """Positions of an epoch, from first to before last."""

    epoch: int
    first: int
    last: int
    counts: bool = True
    """False: the positions only fill a batch up, and their labels are ignored."""


class RankBatches(NamedTuple):
    """Samples that one rank reads of consecutive global batches of an epoch, from position `first` on."""

    epoch: int
    first: int
    batches: int
    batch_size: int
    rank: int
    world_size: int

    @property
    def last(self) -> int:
        """Position after the last global batch."""
        return self.first + self.batches * self.batch_size * self.world_size


class ReadableDataset(Protocol):
    """Samples by position, for a loader."""

    fingerprint: str
    """Identity of the data and all that orders and cuts them: equal fingerprints are the same stream."""
    seq_len: int
    times_set: int
    """Number of calls of `set_epoch` in this process."""

    @property
    def epoch(self) -> int:
        """Epoch that a new stream begins with."""

    @property
    def ranks(self) -> str:
        """distinct: each rank reads its own part of a global batch; shared: all read all of it."""

    @property
    def step_windows(self) -> int | None:
        """Windows of an optimizer step, which batches of all ranks must divide; None: any batch."""

    def __len__(self) -> int:
        """Return the number of positions in an epoch."""

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """Return the batch of the positions start to stop of an epoch."""

    def batches_per_read(self, batch_size: int) -> int:
        """Return how many batches of that size are best read together; 1: `read` is used."""

    def read_batches(self, part: RankBatches) -> Iterator[Batch]:
        """Return a rank's batches; they are read when this returns."""

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        """Hint that these positions are read soon."""

    def join(self, batches: Sequence[Batch]) -> Batch:
        """Return one batch of several, in their order."""


def read_spans(dataset: ReadableDataset, spans: list[Span]) -> Batch:
    """Return one batch of the samples at these positions; empty without positions."""
    parts = [_read_span(dataset, span) for span in spans]
    if len(parts) < 2:
        return parts[0] if parts else {}
    return dataset.join(parts)


def will_need_spans(dataset: ReadableDataset, spans: list[Span]) -> None:
    """Hint that these positions are read soon."""
    for span in spans:
        dataset.will_need(span.epoch, span.first, span.last)


def _read_span(dataset: ReadableDataset, span: Span) -> Batch:
    batch = dataset.read(span.epoch, span.first, span.last)
    if not span.counts:
        import torch

        batch["labels"] = torch.full_like(batch["labels"], IGNORED_LABEL)
    return batch


def unshifted(batch: Batch) -> Batch:
    """Return the batch with labels for models of transformers, which shift labels themselves.

    labels[:, t] is then the earlier label of input_ids[:, t - 1]: the token at t, or -100 if a document
    begins there. The first column is -100, so that seq_len - 1 labels of a window count.
    """
    import torch

    labels = torch.full_like(batch["labels"], IGNORED_LABEL)
    labels[:, 1:] = batch["labels"][:, :-1]
    return {**batch, "labels": labels}
