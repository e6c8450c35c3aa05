"""Base of map-style datasets: samples by index, and whole batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.dataset.batch_kinds import NO_ROWS
from data_loading.dataset.epochs import EpochDataset
from data_loading.dataset.protocol import RankBatches

if TYPE_CHECKING:
    import torch

    from data_loading.loader.loader import Loader

    Batch = dict[str, torch.Tensor]


class MapStyleDataset(EpochDataset["Loader"]):
    """A dataset with `ds[i]` and `ds.__getitems__(indices)`: windows at positions of the current epoch."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the windows in an epoch."""

    @abc.abstractmethod
    def read_at(self, epoch: int, positions: Sequence[int] | np.ndarray) -> Batch:
        """Return the batch of these positions of an epoch; those of a range cost least."""

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """Return the batch of the positions start to stop of an epoch."""
        return self.read_at(epoch, range(start, stop))

    def batches_per_read(self, batch_size: int) -> int:
        """Return how many batches of that size are best read together; 1: each alone."""
        return 1

    def read_batches(self, part: RankBatches) -> Iterator[Batch]:
        """Return a rank's batches, if `batches_per_read` is more than 1."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        """Return one sample, (seq_len,) each; cu_seqlens and shift as in a batch.

        Negative indices count from the end, as in a list.
        """
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        batch = self.__getitems__([index])
        return {name: rows if name in NO_ROWS else rows[0] for name, rows in batch.items()}

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return a whole batch, (len(indices), seq_len) int64 each, read in one gather.

        labels[:, t] is the token after input_ids[:, t] (of `shift_labels=False`: the one at it).
        """
        return WholeBatch(self.read_at(self.epoch, indices))

    @staticmethod
    def collate(batch: Batch) -> Batch:
        """Return the batch as it is: a collate_fn for loaders that do not use torch's default one."""
        return dict(batch)

    def _loader_kind(self) -> type[Loader]:
        from data_loading import Loader

        return Loader


class WholeBatch(dict[str, Any]):
    """A batch that torch's default collate function returns as it is.

    That function expects a list of samples, and looks at the first to choose how to join them.
    """

    def __missing__(self, key: Any) -> Any:
        if key != 0:
            raise KeyError(key)
        from torch.utils.data._utils.collate import default_collate_fn_map

        default_collate_fn_map.setdefault(_AnySample, _without_joining)
        return _AnySample()


class _AnySample:
    """Placeholder for a sample of a batch that is joined already."""


def _without_joining(batch: WholeBatch, *, collate_fn_map: Any = None) -> Batch:
    return dict(batch)
