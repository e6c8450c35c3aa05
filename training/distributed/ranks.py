"""What the loop of a run asks of its other ranks. A run of one process asks nobody, loads nothing for it."""

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
    """Another rank ended first, and this one could not go on without it."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class Ranks:
    """All ranks of a run, as one of them sees them. place: of this one."""

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
        """Meet the others and open the process group; on a GPU with nccl, and gloo for what is on the host.

        device: `cpu` or `cuda`. check: raises when this process is to stop. on_stuck: see `Watch`.

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
        told = meet(store, self.place, {"device": device, "gpu": _gpu(device)}, check)
        _check_devices(told)
        hosts = [one["host"] for one in told]
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
        """What rank 0 makes, on every rank; the others wait for it, however long it takes."""
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
        """Largest of the numbers that the ranks have, over the host."""
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
        """Sum of what the ranks have, over the host."""
        if self.is_alone:
            return number
        import torch
        import torch.distributed as dist

        held = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(held)
        return int(held.item())

    def check(self) -> None:
        """Raise RankFailed when another rank is known to have ended; no communication."""
        if self._watch is not None and self._watch.failure is not None:
            raise RankFailed(self._watch.failure)

    def least(self, number: int) -> int:
        """Of what the ranks have, over the host."""
        return -self.largest(-number)

    def sum_(self, *tensors: torch.Tensor) -> None:
        """Sum each over the ranks, in place and in one go; they are on one device."""
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
        """Tell the others that this rank ends with an error; returns what it is to be told as.

        That is another rank's, where that was first and this one only lost its peer.
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
        first = watch.tell(kind, reason, number)
        if first.rank != self.rank and first.reason != reason:
            log.error("%s", first)
        return error

    def leave(self) -> None:
        """At the end of the run: the others wait for rank 0 to be done, and it for them to know."""
        if self._watch is None or self._store is None:
            return
        import torch.distributed as dist

        if self.is_first:
            # What fails from here on takes nothing from a run that has written its end.
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
        """After an error: stay until the others know of it. Of those that wait for this rank in a collective,
        gloo's end when this process does; others by themselves (`Watch`).
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
    """What was asked of any rank, known to all of them at the same place of the run.

    requested: the signal, once they have agreed on it. own: of this process.
    """

    def __init__(self, own: Interrupt, ranks: Ranks, schedule: Schedule | None = None) -> None:
        super().__init__()
        self._own, self._ranks = own, ranks
        self._schedule = schedule or Schedule()

    def is_due(self) -> bool:
        """Count a step; whether all ranks call `agree` now.

        Raises:
            RankFailed: another rank ended.
        """
        self._ranks.check()
        return self._schedule.is_due()

    def agree(self) -> int | None:
        """Ask all ranks, each of which asks now too; one collective over the host."""
        if self.requested is None:
            lasted_us = round(1e6 * self._schedule.lasted_s())
            requested, longest_us = self._ranks.largest_of_each([self._own.requested or 0, lasted_us])
            self.requested = requested or None
            self._schedule.agreed(longest_us / 1e6)
        return self.requested

    def left_s(self) -> float | None:
        """As this process knows it, once they have agreed to stop."""
        return None if self.requested is None else self._own.left_s()

    def check(self) -> None:
        """Raise Agreed when they have agreed to stop."""
        if self.requested is not None:
            raise Agreed(self.requested)


def _gpu(device: str) -> str | None:
    """What tells this rank's GPU from others."""
    if device != "cuda":
        return None
    import torch

    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _check_devices(told: list[dict[str, Any]]) -> None:
    devices = {rank: one["device"] for rank, one in enumerate(told)}
    if len(set(devices.values())) > 1:
        without = next(rank for rank, device in devices.items() if device == "cpu")
        raise UserError(
            f"rank {without} on {told[without]['host']} sees no GPU, others do. Ask for a GPU for each rank "
            "(slurm.gpus_per_node=N with as many tasks), or compute on CPUs: training.device=cpu"
        )
    seen: dict[str, int] = {}
    for rank, one in enumerate(told):
        if one["gpu"] is not None and one["gpu"] in seen:
            raise UserError(
                f"ranks {seen[one['gpu']]} and {rank} on {one['host']} share one GPU, and nccl wants one for "
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
    """Whether it says no more than that a peer did not answer."""
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _GROUP_WORDS)


def _as_error(failure: Failure) -> BaseException:
    if failure.kind == "interrupted" and failure.signal_number is not None:
        return Interrupted(failure.signal_number)
    return RankFailed(failure)
