"""The dataset of a split as a configuration describes it."""

from __future__ import annotations

from conf.schema import Dataset
from data_loading.dataset.batch_options import BatchOptions
from data_loading.dataset.streaming_dataset import StreamingDataset
from data_loading.find.prepared_data import Data
from data_loading.hub.stream import HubStream
from data_loading.mixture.mixed_data import MixedData
from data_loading.mixture.schedule import Schedule
from data_loading.mixture.streaming_mixture import StreamingMixture, schedule_of


def open_train(
    data: Data | MixedData, dataset: Dataset, seq_len: int, seed: int, step_windows: int
) -> StreamingDataset | StreamingMixture | HubStream:
    """What a run trains on. step_windows: of an optimizer step, over all ranks and micro-batches.

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
        from data_loading.hub.hub_data import StreamData

        assert isinstance(data, StreamData)
        stream = data.train_stream(dataset, seq_len, seed)
        stream.contiguous = False
        return stream
    return open_train_of(data, dataset, seq_len, seed, step_windows)


def open_train_of(
    data: Data, dataset: Dataset, seq_len: int, seed: int, step_windows: int
) -> StreamingDataset:
    """As `open_train`, of one set."""
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
    """Windows of an epoch of what `open_train` gives, without opening it."""
    if isinstance(data, MixedData):
        return train_schedule(data, dataset, seq_len, step_windows).length
    return BatchOptions.of(dataset, seq_len, step_windows).count(data, "train")


def train_schedule(data: MixedData, dataset: Dataset, seq_len: int, step_windows: int) -> Schedule:
    """Which source is read when, each of which has a window."""
    sizes = [train_windows(part, dataset, seq_len, step_windows) for part in data.parts]
    return schedule_of(sizes, data.shares, seq_len, data.when_dry)


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
        contiguous=False,
    )
