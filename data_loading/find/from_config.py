"""Datasets of a run, as its configuration describes them."""

from __future__ import annotations

from conf.schema import Dataset
from data_loading.dataset.batch_options import BatchOptions
from data_loading.dataset.split_data import Data
from data_loading.dataset.streaming_dataset import StreamingDataset
from data_loading.find.mixed_data import MixedData
from data_loading.hub_stream.hub_stream import HubStream
from data_loading.mixture.schedule import Schedule
from data_loading.mixture.streaming_mixture import StreamingMixture, schedule_of


def open_train(
    data: Data | MixedData, dataset: Dataset, seq_len: int, seed: int, step_windows: int
) -> StreamingDataset | StreamingMixture | HubStream:
    """Return the train dataset. step_windows: of an optimizer step, over all ranks and micro-batches.

    Raises:
        UserError: no such windows in the split, or they cannot be read as asked.
    """
    if isinstance(data, MixedData):
        sources = {
            name: open_train_of(part, dataset, seq_len, seed, step_windows)
            for name, part in zip(data.names, data.parts, strict=True)
        }
        curriculum = {tokens: shares for tokens, shares in data.shares.items() if tokens}
        return StreamingMixture(sources, data.weights, curriculum=curriculum, when_dry=data.when_dry)
    if not data.is_counted:
        from data_loading.find.hub_data import StreamData

        assert isinstance(data, StreamData)
        stream = data.train_stream(dataset, seq_len, seed)
        stream.contiguous = False
        return stream
    return open_train_of(data, dataset, seq_len, seed, step_windows)


def open_train_of(
    data: Data, dataset: Dataset, seq_len: int, seed: int, step_windows: int
) -> StreamingDataset:
    """Return the train dataset of one set."""
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
        contiguous=False,
        ranks=dataset.ranks,
    )


def train_windows(data: Data | MixedData, dataset: Dataset, seq_len: int, step_windows: int) -> int:
    """Return the windows of an epoch of the train dataset, without opening it."""
    if isinstance(data, MixedData):
        return train_schedule(data, dataset, seq_len, step_windows).length
    return BatchOptions.of(dataset, seq_len, step_windows).count(data, "train")


def train_schedule(data: MixedData, dataset: Dataset, seq_len: int, step_windows: int) -> Schedule:
    """Return the schedule of a mixture whose sources have a window each."""
    sizes = [train_windows(part, dataset, seq_len, step_windows) for part in data.parts]
    return schedule_of(sizes, data.shares, seq_len, data.when_dry)


def open_held_out(data: Data, split: str, dataset: Dataset, seq_len: int) -> StreamingDataset:
    """Return val or test: plain windows in order, with the labels and the reader of the run.

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
        contiguous=False,
    )
