"""What loaders of all kinds share: batches of a dataset for one rank, and where they stand."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from conf.schema import REMOVED_KEYS
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]


class AtAnEpoch(Protocol):
    """epoch: the one that a new stream begins with. fingerprint: of all that makes the stream. times_set: how
    often it was told an epoch.
    """

    fingerprint: str
    times_set: int

    @property
    def epoch(self) -> int: ...


Dataset = TypeVar("Dataset", bound=AtAnEpoch)


class RankLoader(abc.ABC, Generic[Dataset]):
    """Iterate to get batches, dicts of tensors.

    repeat=False: an iteration ends with the epoch, the next one is the next epoch. repeat=True: it never
    ends. num_batches: it ends after so many. tail: what becomes of the windows at the end of an epoch that
    make no whole batch. pin_memory: batches lie in page-locked memory, for a GPU.
    """

    tails: ClassVar[tuple[str, ...]]

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
        """Where the stream stands, as plain values."""

    @abc.abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there.

        Raises:
            UserError: the state is of another dataset or other options.
        """

    def _place(self, state: dict[str, Any]) -> tuple[int, int]:
        """Epoch, and windows read of it.

        Raises:
            UserError: the state is of other data or another tail, damaged, or it is none.
        """
        if not isinstance(state, dict) or {"epoch", "samples", "fingerprint"} - state.keys():
            raise UserError(
                f"{state!r} is no state of a loader: expected epoch, samples and fingerprint, as "
                "state_dict() gives them",
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
                f"the checkpoint was read with tail {state['tail']!r}, this run has {self.tail!r}: behind an "
                "epoch the stream would be another. Take the same tail, or start a new run",
                code="state-of-other-tail",
            )
        epoch, samples = state["epoch"], state["samples"]
        if type(epoch) is not int or type(samples) is not int or epoch < 0 or samples < 0:
            raise self._damaged(f"epoch {epoch!r}, {samples!r} windows read")
        return epoch, samples

    def _damaged(self, what: str) -> UserError:
        return UserError(f"the state is damaged: {what}. Go on from another checkpoint", code="state-damaged")

    def _asked_epoch(self) -> int | None:
        """Which epoch the dataset was set to since the last iteration; None also where that is the epoch of a
        state that was loaded, as the loop of a resumed training sets it.
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
