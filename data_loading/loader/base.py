"""Base of all loaders: batches of a dataset for one rank, with the state of their stream."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from conf.schema import REMOVED_KEYS
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]


class HasEpoch(Protocol):
    """A dataset with epochs."""

    fingerprint: str
    """Identity of all that makes the stream."""
    times_set: int
    """Number of calls of `set_epoch` in this process."""

    @property
    def epoch(self) -> int:
        """Epoch that a new stream begins with."""


Dataset = TypeVar("Dataset", bound=HasEpoch)


class RankLoader(abc.ABC, Generic[Dataset]):
    """Iterate to get batches, dicts of tensors."""

    tails: ClassVar[tuple[str, ...]]
    """Choices of `tail`."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        num_batches: int | None = None,
        repeat: bool = False,
        tail: str = "keep",
        pin_memory: bool = False,
        num_workers: None = None,
    ) -> None:
        """Check the options.

        Args:
            dataset: Read by position, or streamed.
            batch_size: Windows of this rank's batches.
            rank: Of `world_size`, counted from 0.
            world_size: Number of ranks.
            num_batches: Batches of an iteration at most; None: no limit.
            repeat: False: an iteration ends with the epoch, and the next one is the next epoch. True: it
                never ends.
            tail: Treatment of the windows at the end of an epoch that make no whole batch, one of `tails`.
            pin_memory: Batches are in page-locked memory, for a GPU.
            num_workers: Was removed; a value is refused.

        Raises:
            UserError: an option is invalid.
        """
        if num_workers is not None:
            raise UserError(f"num_workers {REMOVED_KEYS['dataset.num_workers']}", code="workers-removed")
        if type(batch_size) is not int:
            raise UserError(f"batch_size {batch_size!r}: expected a whole number", code="number-not-whole")
        if tail not in self.tails:
            raise UserError(f"tail {tail!r}: choices are {', '.join(self.tails)}", code="tail-unknown")
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: expected at least 1", code="batch-size-invalid")
        if num_batches is not None and num_batches < 0:
            raise UserError(f"num_batches {num_batches}: expected at least 0", code="num-batches-negative")
        if not 0 <= rank < world_size:
            raise UserError(f"rank {rank} of {world_size}: ranks count from 0", code="rank-outside")
        if pin_memory:
            _check_pinnable()
        self.dataset, self.batch_size = dataset, batch_size
        self.rank, self.world_size = rank, world_size
        self.num_batches, self.repeat = num_batches, repeat
        self.tail, self.pin_memory = tail, pin_memory
        self._epoch, self._samples = dataset.epoch, 0
        self._times_seen, self._is_resumed = dataset.times_set, False

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream, as plain values."""

    @abc.abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            UserError: the state is of another dataset or other options.
        """

    def _position_in(self, state: dict[str, Any]) -> tuple[int, int]:
        """Return the epoch, and the windows that were read of it.

        Raises:
            UserError: the state is of other data or another tail, damaged, or no state.
        """
        if not isinstance(state, dict) or {"epoch", "samples", "fingerprint"} - state.keys():
            raise UserError(
                f"{state!r} is no state of a loader: expected epoch, samples and fingerprint, as "
                "state_dict() returns them",
                code="state-invalid",
            )
        if state["fingerprint"] != self.dataset.fingerprint:
            raise UserError(
                f"the checkpoint read other data: it is at [{state['fingerprint']}], this run reads "
                f"[{self.dataset.fingerprint}]. Bring the same data and options back, or start a new run",
                code="state-of-other-data",
            )
        if state.get("tail", self.tail) != self.tail:
            raise UserError(
                f"the checkpoint was read with tail {state['tail']!r}, this run has {self.tail!r}: after an "
                "epoch the stream would differ. Use the same tail, or start a new run",
                code="state-of-other-tail",
            )
        epoch, samples = state["epoch"], state["samples"]
        if type(epoch) is not int or type(samples) is not int or epoch < 0 or samples < 0:
            raise self._damaged(f"epoch {epoch!r}, {samples!r} windows read")
        return epoch, samples

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"the state is damaged: {what}. Continue from another checkpoint", code="state-damaged"
        )

    def _requested_epoch(self) -> int | None:
        """Return the epoch that the dataset was set to since the last iteration.

        None if it was not set, or set to the epoch of a state that was loaded, as a resumed training does.
        """
        was_set, is_resumed = self.dataset.times_set != self._times_seen, self._is_resumed
        self._times_seen, self._is_resumed = self.dataset.times_set, False
        if not was_set or (is_resumed and self.dataset.epoch == self._epoch):
            return None
        return self.dataset.epoch

    def _resume(self, epoch: int, samples: int) -> None:
        self._epoch, self._samples = epoch, samples
        self._times_seen, self._is_resumed = self.dataset.times_set, True


def pinned(batch: Batch) -> Batch:
    """Return a copy in page-locked memory, which a GPU reads while the CPU continues.

    Its tensors are contiguous: a copy to the GPU from others is not asynchronous.
    """
    return {name: tensor.contiguous().pin_memory() for name, tensor in batch.items()}


def _check_pinnable() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "pin_memory is for a GPU, and torch sees none here. Remove pin_memory",
            code="pin-memory-without-gpu",
        )
