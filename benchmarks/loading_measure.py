"""What is measured of a loader of tokens in its own process: time, memory and reads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import descendants, proc_bytes

_WARM_UP_S = 0.3


@dataclass(frozen=True)
class Job:
    """One measurement.

    warm_up, batches: how many at most (batches_at_least is the fewest); seconds: how long at most. options:
    of the loader's own.
    """

    seq_len: int
    batch_size: int
    warm_up: int = 100
    batches: int = 1_000_000
    batches_at_least: int = 10
    seconds: float = 1.0
    options: dict[str, Any] | None = None


def tensor(array: np.ndarray, dtype: Any = np.int64) -> Any:
    import torch

    return torch.from_numpy(np.array(array, dtype=dtype))


def pairs(stream: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Inputs and labels, of batches that are such pairs, or rows of one token more."""
    for batch in stream:
        if isinstance(batch, (tuple, list)):
            yield batch[0], batch[1]
        else:
            rows = tensor(batch) if isinstance(batch, np.ndarray) else batch.long()
            yield rows[:, :-1], rows[:, 1:]


def check(batch: tuple[Any, Any], job: Job) -> None:
    """Raises RuntimeError if a batch is not what the other loaders give."""
    import torch

    inputs, labels = batch
    wanted = (job.batch_size, job.seq_len)
    for one in batch:
        if one.dtype != torch.int64 or tuple(one.shape) != wanted:
            raise RuntimeError(f"{one.dtype} {tuple(one.shape)} instead of int64 {wanted}")
    if not torch.equal(inputs[:, 1:], labels[:, :-1]):
        raise RuntimeError("the labels are not the inputs one token on")


def resident() -> dict[str, int]:
    """Bytes of this process and its children by kind (proc(5))."""
    pids = [os.getpid(), *descendants(os.getpid())]
    names = ("RssAnon", "RssFile", "RssShmem", "VmRSS")
    return {name: sum(proc_bytes(name, pid) for pid in pids) for name in names}


def bytes_read() -> int:
    """Bytes that this process has caused to be read from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def measure(batches: Callable[[], Iterator[Any]], job: Job) -> dict[str, Any]:
    """Time, memory and reads of this process, from a loader's first batch on.

    Memory is the growth since the end of the warm-up, summed over this process and its children; and the
    highest RSS of this process since the first batch, by the kernel.
    """
    import torch

    torch.set_num_threads(1)
    read = bytes_read()
    stream = pairs(batches())
    check(next(stream), job)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again (proc(5))
    first, until, warmed = resident(), time.perf_counter() + _WARM_UP_S, 1
    while warmed < job.warm_up and (time.perf_counter() < until or warmed < 3):
        next(stream)
        warmed += 1
    before, started, done = resident(), time.perf_counter(), 0
    while done < job.batches and (time.perf_counter() - started < job.seconds or done < job.batches_at_least):
        next(stream)
        done += 1
    seconds, after = time.perf_counter() - started, resident()
    return {
        "batches": done,
        "seconds": seconds,
        "tokens_s": done * job.batch_size * job.seq_len / seconds,
        "read_bytes": bytes_read() - read,
        "read_batches": done + warmed,
        "growth_bytes": {name: after[name] - before[name] for name in before},
        "peak_growth_bytes": proc_bytes("VmHWM") - first["VmRSS"],
    }
