"""A process has one copy of token files, and reads from it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from data_loading.readers import in_memory
from data_loading.readers.extents import extents_of
from data_loading.readers.in_memory import InMemoryReader
from data_loading.tokens.shards import Shards
from tests.golden_text import Golden


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(100_000).astype("<u2"))
    return path


def test_readers_of_a_process_share_one_copy(tokens: Path) -> None:
    one, other = (InMemoryReader(extents_of(np.load(tokens, mmap_mode="r"))) for _ in range(2))
    assert one.extents.buffers[0] is other.extents.buffers[0]
    assert other.gather(np.array([70_000, 5]), 3).tolist() == [[4464, 4465, 4466], [5, 6, 7]]
    copies = len(in_memory._copies)
    del one, other
    gc.collect()
    assert len(in_memory._copies) == copies - 1, "it is freed with its last reader"


def test_copy_outlives_the_file_and_a_changed_file_gets_its_own(tokens: Path) -> None:
    """Of the same size and inode: only its time of modification differs."""
    old = InMemoryReader(extents_of(np.load(tokens, mmap_mode="r")))
    state = tokens.stat()
    with open(tokens, "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\1\0\2\0")
    os.utime(tokens, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    new = InMemoryReader(extents_of(np.load(tokens, mmap_mode="r")))
    assert old.gather(np.array([99_998]), 2).tolist() == [[34462, 34463]]
    assert new.gather(np.array([99_998]), 2).tolist() == [[1, 2]]


def test_shards_and_arrays_are_read(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 2**16, 1000).astype("<u2")
    np.save(tmp_path / "a.npy", whole[:300])
    parts = [np.load(tmp_path / "a.npy", mmap_mode="r"), whole[300:]]
    reader = InMemoryReader(extents_of(Shards(parts)))
    starts = np.array([990, 0, 295, 500])
    assert reader.gather(starts, 10).tolist() == [whole[s : s + 10].tolist() for s in starts]
    with pytest.raises((ValueError, TypeError), match=r"read-only|readonly"):
        reader.extents.buffers[0][0] = 1


def test_set_without_room_is_refused(tokens: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(in_memory, "room_bytes", lambda: 50_000)
    with golden.refused("memory-too-small"):
        InMemoryReader(extents_of(np.load(tokens, mmap_mode="r")))
