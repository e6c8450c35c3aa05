"""One copy for all processes of a job, handed on when one of them is killed, gone with the last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.readers import in_memory
from data_loading.readers.extents import extents_of
from data_loading.readers.in_memory import InMemoryReader
from data_loading.shards import Shards
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
READS = """
import sys
import numpy as np
from data_loading.readers.extents import extents_of
from data_loading.readers.in_memory import InMemoryReader
tokens = np.load(sys.argv[1], mmap_mode="r")
reader = InMemoryReader(extents_of(tokens))
assert reader.gather(np.array([70_000, 5]), 3).tolist() == [[4464, 4465, 4466], [5, 6, 7]]
if len(sys.argv) > 2:
    import os
    if os.fork() == 0:
        sys.stdin.readline()
        os._exit(0)
print(next(line.split()[4] for line in open("/proc/self/maps") if "highwater-tokens" in line), flush=True)
sys.stdin.readline()
assert reader.gather(np.array([99_998]), 2).tolist() == [[34462, 34463]]
print("read again", flush=True)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(100_000).astype("<u2"))
    return path


@pytest.fixture
def start(tokens: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*more: str, **environment: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", READS, str(tokens), *more], cwd=ROOT, env=os.environ | environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def inode(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_share_one_copy_that_outlives_each_of_them(start: Start) -> None:
    together = [start() for _ in range(3)]
    inodes = {inode(process) for process in together}
    assert len(inodes) == 1
    for killed in together[:2]:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        late = start()
        assert {inode(late)} == inodes, "the next that holds it hands it on"
        together.append(late)
    output, _ = together[2].communicate("\n")
    assert output == "read again\n"
    for process in together:
        process.kill()
        process.wait()
    assert not list(Path("/dev/shm").glob("*highwater-*"))
    assert inode(start()) not in inodes, "gone with the last"


def test_a_forked_worker_does_not_keep_the_name(start: Start) -> None:
    """Its parent is killed: the next process makes a copy of its own, and hands that on under the name."""
    forked = start("fork")
    first = inode(forked)
    forked.kill()
    forked.wait()
    second = inode(start())
    assert second != first
    assert inode(start()) == second


def test_jobs_have_their_own(start: Start) -> None:
    assert inode(start(SLURM_JOB_ID="1")) != inode(start(SLURM_JOB_ID="2"))


def test_shards_and_arrays_are_copied_as_they_lie(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 2**16, 1000).astype("<u2")
    np.save(tmp_path / "a.npy", whole[:300])
    parts = [np.load(tmp_path / "a.npy", mmap_mode="r"), whole[300:]]
    reader = InMemoryReader(extents_of(Shards(parts)))
    starts = np.array([990, 0, 295, 500])
    assert reader.gather(starts, 10).tolist() == [whole[s : s + 10].tolist() for s in starts]
    with pytest.raises((ValueError, TypeError), match=r"read-only|readonly"):
        reader.extents.buffers[0][0] = 1


def test_a_set_without_room_is_refused(tokens: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(in_memory, "room_bytes", lambda: 50_000)
    os.utime(tokens, (1, 1))
    with golden.refused("memory-too-small"):
        InMemoryReader(extents_of(np.load(tokens, mmap_mode="r")))


def test_what_cannot_be_read_to_its_end_is_an_error(tokens: Path, golden: Golden) -> None:
    mapped: Any = np.load(tokens, mmap_mode="r")
    os.truncate(tokens, 1000)
    with golden.refused("truncated-while-read"):
        InMemoryReader(extents_of(mapped))
