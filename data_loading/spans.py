"""Spans of positions: what a batch is made of, and reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from data_loading.positioned import Positioned

    Batch = dict[str, torch.Tensor]

IGNORED_LABEL = -100
"""Of what no loss is taken: torch's own default (torch.nn.CrossEntropyLoss, ignore_index)."""


class Span(NamedTuple):
    """Positions of an epoch, from first to before the last. counts: False: they only fill a batch up."""

    epoch: int
    first: int
    last: int
    counts: bool = True


class Taken(NamedTuple):
    """What a rank reads of so many global batches that follow each other within an epoch, from `first` on."""

    epoch: int
    first: int
    batches: int
    batch_size: int
    rank: int
    world_size: int

    @property
    def last(self) -> int:
        """Before which position of the epoch they end."""
        return self.first + self.batches * self.batch_size * self.world_size


def read_spans(dataset: Positioned, spans: list[Span]) -> Batch:
    """One batch of the windows at these positions; empty where there are none."""
    parts = [_read_span(dataset, span) for span in spans]
    if len(parts) < 2:
        return parts[0] if parts else {}
    return dataset.join(parts)


def will_need_spans(dataset: Positioned, spans: list[Span]) -> None:
    """Tell the kernel that these are read soon."""
    for span in spans:
        dataset.will_need(span.epoch, span.first, span.last)


def _read_span(dataset: Positioned, span: Span) -> Batch:
    batch = dataset.read(span.epoch, span.first, span.last)
    if not span.counts:
        import torch

        batch["labels"] = torch.full_like(batch["labels"], IGNORED_LABEL)
    return batch
