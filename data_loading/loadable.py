"""What datasets of all kinds have: an epoch, and loaders; map-style ones have samples besides."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from data_loading.batches import NO_ROWS
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.loader import Loader
    from data_loading.rank_loader import RankLoader
    from data_loading.spans import Taken

    Batch = dict[str, torch.Tensor]

Kind = TypeVar("Kind", bound="RankLoader[Any]", covariant=True)


class Loadable(abc.ABC, Generic[Kind]):
    """fingerprint: of the data and all that orders and cuts them: equal ones are of the same stream."""

    fingerprint: str
    times_set = 0
    """How often `set_epoch` was called, in this process."""
    _epoch: torch.Tensor

    @property
    def epoch(self) -> int:
        """The epoch whose order positions refer to, and that new loaders begin with."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration of a loader is that epoch, from its beginning; of one that has just loaded a
        state of that epoch, what is left of it. Worker processes of a torch DataLoader see it as well.
        """
        if epoch < 0:
            raise ValueError(f"epochs count from 0, got {epoch}")
        self._epoch.fill_(epoch)
        self.times_set += 1

    def loader(
        self,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        num_batches: int | None = None,
        repeat: bool = False,
        tail: str = "keep",
        pin_memory: bool = False,
        num_workers: None = None,
    ) -> Kind:
        """Batches of this rank, resumable; see `Loader`, and `StreamLoader` for what is streamed."""
        kind = self._loader_kind()
        return kind(
            self, batch_size, rank, world_size, num_batches=num_batches, repeat=repeat, tail=tail,
            pin_memory=pin_memory, num_workers=num_workers,
        )  # fmt: skip

    @abc.abstractmethod
    def _loader_kind(self) -> type[Kind]: ...


def shared_epoch() -> torch.Tensor:
    """Return epoch 0 in shared memory, so that persistent workers of a torch DataLoader see it change."""
    import torch

    return torch.zeros((), dtype=torch.int64).share_memory_()


class MapStyle(Loadable["Loader"]):
    """`ds[i]` and `ds.__getitems__(indices)` are the windows at these positions of the current epoch."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Windows in an epoch."""

    @abc.abstractmethod
    def read_at(self, epoch: int, positions: Sequence[int] | np.ndarray) -> Batch:
        """The batch of these positions of an epoch; those of a range cost least."""

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """The batch of the positions start to stop of an epoch."""
        return self.read_at(epoch, range(start, stop))

    def at_once(self, batch_size: int) -> int:
        """How many batches of that size are best read in one go; 1: each by itself."""
        return 1

    def read_taken(self, taken: Taken) -> Iterator[Batch]:
        """A rank's batches, where `at_once` says more than 1."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        """One sample, (seq_len,) each; cu_seqlens and shift as in a batch. Negative indices count from the
        end, as in a list.
        """
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        batch = self.__getitems__([index])
        return {name: rows if name in NO_ROWS else rows[0] for name, rows in batch.items()}

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """A whole batch, (len(indices), seq_len) int64 each, read in one gather.

        labels[:, t] is the token after input_ids[:, t] (of `shift_labels=False`: the one at it).
        """
        return WholeBatch(self.read_at(self.epoch, indices))

    @staticmethod
    def collate(batch: Batch) -> Batch:
        """For a DataLoader of torch: what __getitems__ returned is a batch already."""
        return batch

    def _loader_kind(self) -> type[Loader]:
        from data_loading.loader import Loader

        return Loader


class WholeBatch(dict[str, Any]):
    """A batch, which torch's own collate function, made for lists of samples, would ask for sample 0."""

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int):
            raise UserError(
                "a DataLoader needs collate_fn=StreamingDataset.collate: the dataset reads whole batches at "
                "once, and torch's own collate function takes samples one by one",
                code="collate-missing",
            )
        raise KeyError(key)
