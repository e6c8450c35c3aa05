"""Batches of one rank; those of all ranks together are what one rank would read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from training.distributed.ranks import Ranks

if TYPE_CHECKING:
    import torch

    from data_loading import HubStream, Loader, StreamingDataset, StreamingMixture, StreamLoader

    Batch = dict[str, torch.Tensor]

log = logging.getLogger("training")


def loader_of(
    dataset: StreamingDataset | StreamingMixture | HubStream, ranks: Ranks, *, batch_size: int, **options: Any
) -> Loader | StreamLoader | PartOfStream:
    """Loader of one rank. Its state covers all ranks: any number of ranks can resume from it.

    batch_size: windows of one rank.
    """
    from data_loading import HubStream

    if ranks.is_alone:
        return dataset.loader(batch_size=batch_size, **options)
    if isinstance(dataset, HubStream):
        if ranks.is_first:
            log.info(
                "every rank reads and tokenizes all of the stream, and keeps its part. Tokenized once: "
                "dataset.materialize=true"
            )
        return PartOfStream(dataset.loader(batch_size=batch_size * ranks.size, **options), ranks)
    return dataset.loader(batch_size=batch_size, rank=ranks.rank, world_size=ranks.size, **options)


class PartOfStream:
    """This rank's rows of each batch of a stream that all ranks read.

    A stream alone would divide files over ranks, which gives other batches than one rank has, and a state
    from which only the same number of ranks can resume.
    """

    def __init__(self, loader: StreamLoader, ranks: Ranks) -> None:
        self._loader, self._ranks = loader, ranks

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            rows, left = divmod(len(batch["input_ids"]), self._ranks.size)
            if left:  # the stream ends within this batch
                return
            first = rows * self._ranks.rank
            yield {name: values[first : first + rows] for name, values in batch.items()}

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)
