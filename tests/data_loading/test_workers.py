"""Batches read by forked processes: the same, and a dead process is told."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_loading import StreamingDataset
from data_loading.storages import packed, unpacked
from memory.kept_files import KEPT
from tests.golden_text import Golden

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"documents": "masked"},
    "shifted": {"windows": "shifted", "step_windows": 8},
    "streams": {"windows": "streams", "step_windows": 8},
}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.integers(0, 50, 20_000).astype("<u2"))
    return tmp_path / "x.npy"


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def pids_of_children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


def open_files() -> set[str]:
    """Descriptors, but for files of /proc that are held open to be read again, some of dead processes."""
    KEPT.close()
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_the_batches_are_those_of_no_workers(tokens: Path, kind: str, workers: int) -> None:
    from data_loading import open_tokens
    from data_loading.data import Data, split_data

    data: Data = split_data(open_tokens(tokens), None, None, 0.1)
    data = Data(**{**data.__dict__, "eot_id": 7})
    dataset = StreamingDataset(data, seq_len=16, **KINDS[kind])
    alone = list(dataset.loader(4, num_batches=40))
    together = list(dataset.loader(4, num_batches=40, num_workers=workers))
    assert len(alone) == len(together) == 40
    assert all(map(equal, alone, together))


@given(data=st.data())
def test_views_of_one_storage_stay_so(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 9))
    ids = torch.arange(rows * (width + 1)).reshape(rows, width + 1)
    batch = {
        "input_ids": ids[:, :-1],
        "labels": ids[:, 1:],
        "step": ids[:, ::2].T,
        "shift": torch.tensor(3),
        "reset": torch.arange(rows) > 1,
        "none": torch.empty(0, dtype=torch.int32),
    }
    found = unpacked(packed(batch))
    assert equal(found, batch)
    same = found["input_ids"].untyped_storage().data_ptr() == found["labels"].untyped_storage().data_ptr()
    assert same
    assert sum(map(len, packed(batch).storages)) == ids.nbytes + 8 + rows


def test_a_killed_worker_is_named(tokens: Path, golden: Golden) -> None:
    before = pids_of_children()
    batches = iter(StreamingDataset(tokens, seq_len=16).loader(4, num_workers=2, repeat=True))
    next(batches)
    victim = max(pids_of_children() - before)
    os.kill(victim, signal.SIGKILL)
    with golden.refused("worker-died", numbers=False):
        for _ in range(20):
            next(batches)
    assert pids_of_children() == before


def test_what_reading_raises_is_raised_here(tokens: Path, golden: Golden) -> None:
    dataset = StreamingDataset(tokens, seq_len=16)
    batches = iter(dataset.loader(4, num_workers=2, repeat=True))
    next(batches)
    with open(tokens, "ab") as file:
        file.write(b"more")
    with golden.refused("changed-while-read"):
        for _ in range(2000):
            next(batches)


def test_a_truncated_file(tokens: Path, golden: Golden) -> None:
    """Found by a look at it; or it kills the worker that was to look 10 ms later, and that is told."""
    batches = iter(StreamingDataset(tokens, seq_len=16).loader(4, num_workers=2, repeat=True))
    next(batches)
    os.truncate(tokens, tokens.stat().st_size // 2)
    with golden.refused("changed-while-read"):
        for _ in range(2000):
            next(batches)


def test_a_fault_of_the_program_is_told_with_its_traceback(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = StreamingDataset(tokens, seq_len=16)
    monkeypatch.setattr(StreamingDataset, "read", lambda *_: [][1])
    with pytest.raises(RuntimeError, match=r"Traceback[\s\S]*IndexError"):
        next(iter(dataset.loader(4, num_workers=1)))


def test_iterations_leave_neither_processes_nor_descriptors(tokens: Path) -> None:
    dataset = StreamingDataset(tokens, seq_len=16)
    gc.collect()  # what exceptions of other tests still hold
    children, files = pids_of_children(), open_files()
    for _ in range(3):
        batches = iter(dataset.loader(4, num_workers=2))
        next(batches)
        del batches
    list(dataset.loader(64, num_workers=2))
    assert pids_of_children() == children
    assert open_files() == files


_READS_ON = """
import sys, os
from data_loading import StreamingDataset
loader = StreamingDataset(sys.argv[1], seq_len=16).loader(4, num_workers=3, repeat=True)
batches = iter(loader)
next(batches)
import glob
pids = [pid for path in glob.glob("/proc/self/task/*/children") for pid in open(path).read().split()]
print(*pids, flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_leaves_nothing(tokens: Path) -> None:
    shared = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen(
        [sys.executable, "-c", _READS_ON, str(tokens)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 3
    parent.kill()
    parent.wait()
    parent.communicate()
    until = time.monotonic() + 60
    while (alive := [pid for pid in workers if is_alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive
    left = set(os.listdir("/dev/shm")) - shared
    assert [name for name in left if any(str(pid) in name for pid in (parent.pid, *workers))] == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_fewer_than_none(tokens: Path, golden: Golden) -> None:
    with golden.refused("workers-negative"):
        StreamingDataset(tokens, seq_len=16).loader(4, num_workers=-1)
