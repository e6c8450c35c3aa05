"""What a Loader reads from: samples at the positions 0, 1, 2 ... of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from data_loading.spans import Taken

    Batch = dict[str, torch.Tensor]


class Positioned(Protocol):
    """fingerprint: of the data and all that orders and cuts them: equal ones are of the same stream."""

    fingerprint: str
    seq_len: int
    times_set: int

    @property
    def epoch(self) -> int:
        """The one that a new stream begins with."""

    @property
    def ranks(self) -> str:
        """distinct: each reads its own part of a global batch; shared: all read all of it."""

    @property
    def step_windows(self) -> int | None:
        """Of an optimizer step, which batches of all ranks must divide; None: they need not."""

    def __len__(self) -> int:
        """Positions in an epoch."""

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """The batch of the positions start to stop of an epoch."""

    def at_once(self, batch_size: int) -> int:
        """How many batches of that size are best read in one go; 1: `read` is used."""

    def read_taken(self, taken: Taken) -> Iterator[Batch]:
        """A rank's batches, read when this returns."""

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        """These are read soon: tell the kernel."""

    def join(self, batches: Sequence[Batch]) -> Batch:
        """One batch of several, in their order."""
