"""Communication of a training loop with its other ranks. A run of one process loads nothing for it."""

from __future__ import annotations

import base64
import logging
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from experiment_utils.errors import UserError
from training.distributed.agreement import Schedule
from training.distributed.place import Place
from training.distributed.watch import Failure, Watch, left_key
from training.interrupt import Interrupt, Interrupted

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store

log = logging.getLogger("training")

Value = TypeVar("Value")
_POLL_S = 0.02


class RankFailed(Exception):
    """Another rank ended first, and this one cannot continue without it."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class Ranks:
    """All ranks of a run, seen from one of them. place: its place."""

    def __init__(self, place: Place | None = None) -> None:
        self.place = place or Place()
        self.rank, self.size = self.place.rank, self.place.world_size
        self.is_first, self.is_alone = self.place.is_first, self.place.is_alone
        self._store: Store | None = None
        self._watch: Watch | None = None
        self._shared = 0

    def join(
        self,
        *,
        device: str,
        check: Callable[[], None],
        on_stuck: Callable[[Failure], None],
    ) -> None:
        """Meet the others and open the process group: nccl on a GPU, gloo for tensors on the host.

        Args:
            device: `cpu` or `cuda`.
            check: raises if this process is to stop.
            on_stuck: see `Watch`.

        Raises:
            RanksMissing: some ranks did not come.
            UserError: the ranks differ in their devices, or share a GPU.
        """
        if self.is_alone:
            return
        from datetime import timedelta

        import torch.distributed as dist

        from training.distributed.rendezvous import COLLECTIVE_S, meet, open_store

        self._store = store = open_store(self.place, check)
        members = meet(store, self.place, {"device": device, "gpu": _gpu(device)}, check)
        _check_devices(members)
        hosts = [one["host"] for one in members]
        own: Any = store  # whose stub has no clone()
        self._watch = Watch(own.clone(), self.place, hosts, on_stuck)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=dist.PrefixStore("group", store),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=COLLECTIVE_S),
        )
        log.info(
            "rank %s of %s on %s (%s): met at %s:%s, %s",
            self.rank, self.size, hosts[self.rank], self.place.source, self.place.address, self.place.port,
            "nccl" if device == "cuda" else "gloo",
        )  # fmt: skip

    def share(self, make: Callable[[], Value], check: Callable[[], None] = lambda: None) -> Value:
        """Make a value on rank 0 and return it on every rank; the others wait without a time limit."""
        if self._store is None or self._watch is None:
            return make()
        self._shared += 1
        key = f"shared/{self._shared}"
        if self.is_first:
            made = make()
            self._store.set(key, base64.b64encode(pickle.dumps(made)).decode())
            return made
        self._wait([key], check)
        found: Value = pickle.loads(base64.b64decode(self._store.get(key)))
        return found

    def largest(self, number: int) -> int:
        """Largest of the ranks' numbers, over the host."""
        return self.largest_of_each([number])[0]

    def largest_of_each(self, numbers: list[int]) -> list[int]:
        """Largest over the ranks of the first number, of the second and so on, over the host."""
        if self.is_alone:
            return numbers
        import torch
        import torch.distributed as dist

        held = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return held.tolist()

    def total(self, number: int) -> int:
        """Sum of the ranks' numbers, over the host."""
        if self.is_alone:
            return number
        import torch
        import torch.distributed as dist

        held = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(held)
        return int(held.item())

    def check(self) -> None:
        """Raise RankFailed if another rank is known to have ended; no communication."""
        if self._watch is not None and self._watch.failure is not None:
            raise RankFailed(self._watch.failure)

    def least(self, number: int) -> int:
        """Smallest of the ranks' numbers, over the host."""
        return -self.largest(-number)

    def sum_(self, *tensors: torch.Tensor) -> None:
        """Sum each tensor over the ranks, in place and in one collective; all are on one device."""
        if self.is_alone:
            return
        import torch
        import torch.distributed as dist

        # In fp64, in which the sum of a few numbers of fp32 is exact, whatever the order.
        flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def ends_with(self, error: BaseException) -> BaseException:
        """Report to the others that this rank ends with an error; returns the error to record.

        That is the failure of another rank if it was first and this rank only lost its peer.
        """
        watch = self._watch
        if watch is None:
            return error
        if isinstance(error, Agreed):
            with suppress(Exception):  # rank 0, which writes the checkpoint, may be gone first or last
                self._store.set(left_key(self.rank), "1")  # type: ignore[union-attr]
            return error
        if isinstance(error, RankFailed) or _is_of_the_group(error):
            found = error.failure if isinstance(error, RankFailed) else watch.first_failure()
            return error if found is None else _as_error(found)
        number = error.signal_number if isinstance(error, Interrupted) else None
        kind = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        reason = (
            str(error) if isinstance(error, UserError | Interrupted) else f"{type(error).__name__}: {error}"
        )
        first = watch.report(kind, reason, number)
        if first.rank != self.rank and first.reason != reason:
            log.error("%s", first)
        return error

    def leave(self) -> None:
        """End the run: the others wait until rank 0 is done, and rank 0 until they have read that."""
        if self._watch is None or self._store is None:
            return
        import torch.distributed as dist

        if self.is_first:
            # The run has written its end: errors from here on change nothing.
            with suppress(Exception):
                self._store.set("done", "1")
                self._wait([left_key(rank) for rank in range(1, self.size)], lambda: None)
        else:
            self._wait(["done"], lambda: None)
            self._store.set(left_key(self.rank), "1")
        self._watch.close()
        dist.destroy_process_group()
        self._watch = self._store = None

    def let_go(self) -> None:
        """After an error, stay until the others have read it.

        Ranks that wait for this one in a collective end with its process under gloo, otherwise by `Watch`.
        """
        if self._watch is None:
            return
        if self.is_first:
            self._watch.linger()
        self._watch.close()

    def _wait(self, keys: list[str], check: Callable[[], None]) -> None:
        assert self._store is not None
        assert self._watch is not None
        try:
            while not self._store.check(keys):
                self.check()
                check()
                time.sleep(_POLL_S)
        except RuntimeError as error:  # the store is gone, with rank 0
            found = self._watch.first_failure()
            if found is None:
                raise
            raise RankFailed(found) from error


class Agreed(Interrupted):
    """A stop that all ranks make at the same step."""


class AgreedInterrupt(Interrupt):
    """A stop requested of any rank, taken by all of them at the same step.

    requested: the signal, once they have agreed on it. own: the interrupt of this process.
    """

    def __init__(self, own: Interrupt, ranks: Ranks, schedule: Schedule | None = None) -> None:
        super().__init__()
        self._own, self._ranks = own, ranks
        self._schedule = schedule or Schedule()

    def is_due(self) -> bool:
        """Count a step; returns whether all ranks call `agree` now.

        Raises:
            RankFailed: another rank ended.
        """
        self._ranks.check()
        return self._schedule.is_due()

    def agree(self) -> int | None:
        """Exchange requests with all ranks, which all call this now; one collective over the host."""
        if self.requested is None:
            lasted_us = round(1e6 * self._schedule.lasted_s())
            requested, longest_us = self._ranks.largest_of_each([self._own.requested or 0, lasted_us])
            self.requested = requested or None
            self._schedule.agreed(longest_us / 1e6)
        return self.requested

    def left_s(self) -> float | None:
        """Seconds left to this process, once the ranks have agreed to stop."""
        return None if self.requested is None else self._own.left_s()

    def check(self) -> None:
        """Raise Agreed if the ranks have agreed to stop."""
        if self.requested is not None:
            raise Agreed(self.requested)


def _gpu(device: str) -> str | None:
    """UUID of this rank's GPU; None on a CPU."""
    if device != "cuda":
        return None
    import torch

    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _check_devices(members: list[dict[str, Any]]) -> None:
    devices = {rank: one["device"] for rank, one in enumerate(members)}
    if len(set(devices.values())) > 1:
        without = next(rank for rank, device in devices.items() if device == "cpu")
        raise UserError(
            f"rank {without} on {members[without]['host']} sees no GPU, others do. Request a GPU for each "
            "rank (slurm.gpus_per_node=N with as many tasks), or compute on CPUs: training.device=cpu"
        )
    seen: dict[str, int] = {}
    for rank, one in enumerate(members):
        if one["gpu"] is not None and one["gpu"] in seen:
            raise UserError(
                f"ranks {seen[one['gpu']]} and {rank} on {one['host']} share one GPU, and nccl needs one for "
                "each. Start as many ranks as there are GPUs, or training.device=cpu"
            )
        if one["gpu"] is not None:
            seen[one["gpu"]] = rank


_GROUP_WORDS = (
    "gloo",
    "NCCL",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket",
)


def _is_of_the_group(error: BaseException) -> bool:
    """Whether an error only means that a peer did not answer."""
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _GROUP_WORDS)


def _as_error(failure: Failure) -> BaseException:
    if failure.kind == "interrupted" and failure.signal_number is not None:
        return Interrupted(failure.signal_number)
    return RankFailed(failure)
