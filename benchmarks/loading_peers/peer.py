"""What every loader's script has in common: its arguments, and how it is measured.

python PEER.py prepare TOKENS.npy FOLDER SEQ_LEN      # writes the loader's own format of these tokens
python PEER.py measure FOLDER JOB                     # JOB: a Job as JSON; prints one line of JSON
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Batch = tuple[torch.Tensor, torch.Tensor]

TOKENS = "tokens.npy"
EOT_ID = 50_256
VOCABULARY = 50_257
_WARM_UP_S = 0.3


@dataclass(frozen=True)
class Job:
    """One measurement.

    warm_up, batches: how many at most (batches_at_least is the fewest); seconds: how long at most. options:
    of the loader's own.
    """

    seq_len: int
    batch_size: int
    workers: int = 0
    warm_up: int = 100
    batches: int = 1_000_000
    batches_at_least: int = 10
    seconds: float = 1.0
    options: dict[str, Any] | None = None


Prepare = Callable[[Path, Path, int], None]
"""(TOKENS.npy, an empty folder, seq_len)"""
Batches = Callable[[Path, Job], "Iterator[Batch]"]
"""(that folder, the job): inputs and labels, int64 (batch, seq_len), shuffled, as many as are asked for."""


def main(prepare: Prepare, batches: Batches) -> None:
    """What a script does when it is run."""
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
        return
    found = measure(batches, Path(sys.argv[2]), Job(**json.loads(sys.argv[3])))
    print(json.dumps(found), flush=True)
    os._exit(0)  # peers leave threads and workers behind that would be waited for


def measure(batches: Batches, folder: Path, job: Job) -> dict[str, Any]:
    """Time, memory and reads of this process, from a loader's first batch on.

    Memory is the growth since the end of the warm-up, of a run with workers summed over all; and the highest
    RSS of this process since the first batch, by the kernel.
    """
    import torch

    torch.set_num_threads(1)
    read = _bytes_read()
    stream = iter(batches(folder, job))
    check(next(stream), job)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM anew (proc(5))
    first = resident()
    until = time.perf_counter() + _WARM_UP_S
    warmed = 1
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
        "read_bytes": _bytes_read() - read,
        "read_batches": done + warmed,
        "growth_bytes": {name: after[name] - before[name] for name in before},
        "peak_growth_bytes": _high_water() - first["VmRSS"],
    }


def check(batch: Batch, job: Job) -> None:
    """Raises RuntimeError: it is not what the others give."""
    import torch

    inputs, labels = batch
    wanted = (job.batch_size, job.seq_len)
    for tensor in batch:
        if tensor.dtype != torch.int64 or tuple(tensor.shape) != wanted:
            raise RuntimeError(f"{tensor.dtype} {tuple(tensor.shape)} in place of int64 {wanted}")
    if not torch.equal(inputs[:, 1:], labels[:, :-1]):
        raise RuntimeError("the labels are not the inputs one token on")


def resident() -> dict[str, int]:
    """RssAnon, RssFile, RssShmem and VmRSS of this process and its children, bytes (proc(5))."""
    names = ("RssAnon", "RssFile", "RssShmem", "VmRSS")
    total = dict.fromkeys(names, 0)
    for process in _with_children(os.getpid()):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        for name in names:
            total[name] += int(fields.get(name, "0 kB").split()[0]) << 10
    return total


def _high_water() -> int:
    """The most that this process had resident since it was told to count anew (VmHWM), bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _with_children(process: int) -> list[int]:
    found = [process]
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [one for child in children.read_text().split() for one in _with_children(int(child))]
        except OSError:
            continue
    return found


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def ids_of(path: Path) -> np.ndarray:
    """The tokens, mapped."""
    found: np.ndarray = np.load(path, mmap_mode="r")
    return found


def blocks(path: Path, tokens: int = 1 << 22) -> Iterator[np.ndarray]:
    """The tokens, in pieces that are read from the file as they come."""
    ids = ids_of(path)
    for start in range(0, len(ids), tokens):
        yield np.array(ids[start : start + tokens])


def write_raw(path: Path, raw: Path) -> None:
    """Nothing but the ids, uint16. Formats that begin like this share one file."""
    shared = path.with_suffix(".raw")
    if not shared.exists():
        partial = shared.with_suffix(".partial")
        with open(partial, "wb") as file:
            for block in blocks(path):
                file.write(block.tobytes())
        partial.rename(shared)
    os.link(shared, raw)


def forever(epoch: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """One epoch after the other."""
    return itertools.chain.from_iterable(epoch() for _ in itertools.repeat(None))
