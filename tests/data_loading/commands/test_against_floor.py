"""The floor reads the loader's very windows, in the state of their pages that is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from data_loading import StreamingDataset
from data_loading.commands.against_floor import AgainstFloor, Pair, median
from data_loading.commands.reading_floor import Floor, bytes_read, drop_from_cache, why_no_floor
from data_loading.readers.choose import file_system_of
from data_loading.readers.extents import extents_of
from data_loading.readers.residency import _file_pages_bytes
from data_loading.shards import Shards
from tests.golden_text import Golden

TOKENS = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 257, TOKENS, np.uint16))
    return tmp_path / "ids.npy"


def test_the_floor_reads_windows_of_a_file_and_of_memory(path: Path) -> None:
    ids, starts = np.load(path, mmap_mode="r"), np.array([70, 0, TOKENS - 9, 3])
    wanted = np.stack([ids[start : start + 9] for start in starts])
    for tokens in (ids, np.array(ids)):
        found = Floor(extents_of(tokens), 9).read(starts)
        assert found.dtype == np.int64
        assert np.array_equal(found, wanted)


def test_windows_of_shards_come_shard_by_shard_and_none_goes_over_an_end() -> None:
    shards = Shards([np.arange(0, 50, dtype="<u4"), np.arange(50, 80, dtype="<u4")])
    found = Floor(extents_of(shards), 5).read(np.array([60, 0, 47]))
    assert found.tolist() == [[0, 1, 2, 3, 4], [45, 46, 47, 48, 49], [60, 61, 62, 63, 64]]


def test_tokens_in_pieces_have_no_floor(golden: Golden) -> None:
    short = extents_of(Shards([np.zeros(50, "<u2"), np.zeros(4, "<u2")]))
    assert why_no_floor(short, 4) is None
    golden.text(why_no_floor(short, 5))
    many = extents_of(Shards([np.zeros(9, "<u2")] * 5000))
    assert "5,000 pieces" in str(why_no_floor(many, 5))


@pytest.mark.parametrize("reader", ["mmap", "pread"])
def test_both_read_the_same_windows_in_the_same_order(
    path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, list[list[int]]] = {"ours": [], "floor": []}
    floor_read, gather = Floor.read, StreamingDataset.read

    def spied_floor(self: Floor, starts: np.ndarray) -> np.ndarray:
        found = floor_read(self, starts)
        read["floor"] += found[:, :-1].tolist()
        return found

    def spied(self: StreamingDataset, epoch: int, start: int, stop: int) -> object:
        found = gather(self, epoch, start, stop)
        read["ours"] += found["input_ids"].tolist()
        return found

    monkeypatch.setattr(Floor, "read", spied_floor)
    monkeypatch.setattr(StreamingDataset, "read", spied)
    monkeypatch.setattr(StreamingDataset, "at_once", lambda *_: 1)
    against = AgainstFloor(StreamingDataset(path, seq_len=16, reader=reader), 12)
    assert against.batches_in(0.01) >= 10
    for number, state in enumerate(("mapped", "cached", "cold", "cached")):
        read["ours"].clear()
        read["floor"].clear()
        pair = against.round(state, 7, ours_first=number % 2 == 0)
        assert pair.batches == 7
        windows = 7 * 12  # a batch over the end of an epoch is read in two parts
        assert read["floor"][-windows:] == read["ours"][-windows:]


def test_a_round_goes_on_in_the_next_epoch(path: Path) -> None:
    dataset = StreamingDataset(path, seq_len=1000)
    against = AgainstFloor(dataset, 64)
    starts = np.concatenate(against._starts(3))
    first = dataset.window_at(range(len(dataset)), 0) * 1000
    assert starts[: len(dataset)].tolist() == first.tolist()
    assert sorted(starts[len(dataset) : 2 * len(dataset)]) == sorted(first)
    assert starts[len(dataset) : 2 * len(dataset)].tolist() != first.tolist()
    assert against.round("cached", 3).batches == 3


def test_cached_pages_are_mapped_by_neither(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    np.save(path, np.ones(8 << 20, np.uint16))
    against = AgainstFloor(StreamingDataset(path, seq_len=1024, reader="mmap"), 32)
    against.round("mapped", 60)
    mapped = _file_pages_bytes()
    against._release()
    assert mapped - _file_pages_bytes() > 20 << 20, "16 MB of each"


def test_what_is_dropped_is_read_from_the_disk_again(tmp_path: Path) -> None:
    path = tmp_path / "cold.bin"
    path.write_bytes(b"x" * (4 << 20))
    subprocess.run(["sync", path], check=True)  # fsync of this process does not wait, see the fixtures
    drop_from_cache([path])
    before = bytes_read()
    path.read_bytes()
    after = bytes_read()
    if before is None or after is None or file_system_of(path) in (None, "tmpfs", "overlay"):
        pytest.skip("no counter of reads, or no disk under this folder")
    assert after - before >= 4 << 20
    path.read_bytes()
    assert bytes_read() == after


def test_tokens_of_no_file_have_no_floor_and_are_measured(
    monkeypatch: pytest.MonkeyPatch, path: Path, golden: Golden
) -> None:
    dataset = StreamingDataset(path, seq_len=16)
    monkeypatch.setattr(
        type(dataset.data.train),
        "extents",
        property(lambda self: extents_of(range(9))),  # type: ignore[arg-type]
    )
    against = AgainstFloor(dataset, 8)
    assert not against.has_files
    golden.text(against.no_floor)
    pair = against.round("cached", 5)
    assert pair.ours_s > 0
    assert pair.share is None


def test_medians_are_of_one_round_each() -> None:
    pairs = [
        Pair(10, 2.0, 1.0, 1.0, 0.9, 100, None),
        Pair(10, 1.0, 3.0, 0.5, 0.2, 300, None),
        Pair(10, 4.0, 2.0, 1.0, 0.7, 200, None),
    ]
    assert median(pairs) == {
        "ours_s": 0.2, "floor_s": 0.2, "share": 0.5, "share_by_cpu": 0.7, "ours_read_bytes": 20.0,
        "floor_read_bytes": None,
    }  # fmt: skip
