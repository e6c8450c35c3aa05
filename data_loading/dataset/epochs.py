"""Base of datasets with epochs, which return loaders of their batches."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import torch

    from data_loading.loader.base import RankLoader

Kind = TypeVar("Kind", bound="RankLoader[Any]", covariant=True)


class EpochDataset(abc.ABC, Generic[Kind]):
    """A dataset with epochs, which returns loaders of its batches."""

    fingerprint: str
    """Identity of the data and all that orders and cuts them: equal fingerprints are the same stream."""
    times_set = 0
    """Number of calls of `set_epoch` in this process."""
    _epoch: torch.Tensor

    @property
    def epoch(self) -> int:
        """Epoch whose order positions refer to, and that new loaders begin with."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration of a loader that epoch, from its beginning.

        A loader that has just loaded a state of that epoch continues it. Worker processes of a torch
        DataLoader see the epoch as well.
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
        """Return a resumable loader of this rank's batches: see `Loader`, and `StreamLoader` for streams."""
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
