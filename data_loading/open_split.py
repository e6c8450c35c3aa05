"""The dataset of a split as a configuration describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conf.schema import Dataset
from data_loading.streaming import StreamingDataset

if TYPE_CHECKING:
    from data_loading.data import Data


def open_train(data: Data, dataset: Dataset, seq_len: int, seed: int, step_windows: int) -> StreamingDataset:
    """What a run trains on. step_windows: of an optimizer step, over all ranks and micro-batches.

    Raises:
        UserError: no such windows in the split, or they cannot be read as asked.
    """
    return StreamingDataset(
        data,
        "train",
        seq_len,
        seed,
        order=dataset.order,
        block_windows=dataset.block_windows,
        shard_windows=dataset.shard_windows,
        windows=dataset.windows,
        stride=dataset.stride,
        shift=dataset.shift,
        step_windows=step_windows,
        documents=dataset.documents,
        reader=dataset.reader,
        max_resident_bytes=dataset.max_resident,
        verify=dataset.verify,
        ranks=dataset.ranks,
    )


def open_held_out(data: Data, split: str, dataset: Dataset, seq_len: int) -> StreamingDataset:
    """val or test: plain windows in order, with the labels of the run, read as its train split is.

    Raises:
        UserError: as `open_train`.
    """
    return StreamingDataset(
        data,
        split,
        seq_len,
        order="sequential",
        shift=dataset.shift,
        documents=dataset.documents,
        reader=dataset.reader,
        max_resident_bytes=dataset.max_resident,
        verify=dataset.verify,
    )
