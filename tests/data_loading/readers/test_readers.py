"""Each reader gives the tokens that a slice gives, in whichever runs they are stored."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.readers.extents import Extents, extents_of
from data_loading.readers.in_memory import InMemoryReader
from data_loading.readers.mapped import MappedReader
from data_loading.readers.positional import PositionalReader
from data_loading.readers.reader import Reader
from data_loading.tokens.shards import Shards
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).resolve().parents[3]
READERS: list[type[Reader]] = [MappedReader, PositionalReader]


def saved(folder: Path, whole: np.ndarray, lengths: list[int]) -> Shards:
    """The tokens in files of these lengths, mapped."""
    parts = []
    for number, (first, last) in enumerate(itertools.pairwise(np.cumsum([0, *lengths]))):
        np.save(folder / f"{number}.npy", whole[first:last])
        parts.append(np.load(folder / f"{number}.npy", mmap_mode="r"))
    return Shards(parts)


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=examples(100))
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    dtype=st.sampled_from(["<u2", "<u4", "<i4", "<i8"]),
    seed=st.integers(0, 9),
    width=st.integers(1, 60),
    touching=st.booleans(),
    data=st.data(),
)
def test_spans_are_slices(
    kind: type[Reader],
    lengths: list[int],
    dtype: str,
    seed: int,
    width: int,
    touching: bool,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """Over several files, of one length or of different ones, some continuing where the one before ended."""
    whole = np.random.default_rng(seed).integers(0, 60_000, sum(lengths)).astype(dtype)
    tokens = saved(tmp_path, whole, lengths)
    width = min(width, len(whole))
    starts = np.random.default_rng(seed).integers(0, len(whole) - width + 1, 20)
    for values in (tokens.parts[0], tokens):
        reader = kind(extents_of(values))
        inside = starts[starts + width <= len(values)]
        found = reader.gather(inside, width)
        assert (found.dtype, found.shape) == (np.dtype(dtype), (len(inside), width))
        assert found.tolist() == [whole[start : start + width].tolist() for start in inside]
    place = st.integers(0, len(whole) - 1)
    asked = data.draw(st.lists(st.tuples(place, place).map(sorted), max_size=20))
    if touching:
        borders = sorted({0, len(whole), *(place for span in asked for place in span)})
        asked = [[a, b - 1] for a, b in itertools.pairwise(borders)]
    spans = np.array(asked, np.int64).reshape(-1, 2)
    found = reader.gather_spans(spans[:, 0], spans[:, 1] - spans[:, 0] + 1)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == [token for a, b in asked for token in whole[a : b + 1].tolist()]


@pytest.mark.parametrize("kind", READERS)
def test_runs_can_be_anywhere_in_a_file(kind: type[Reader], tmp_path: Path) -> None:
    """Samples of three tokens, each behind a header of five bytes: nothing is aligned."""
    ids = np.arange(30, dtype="<u2") * 1000
    path = tmp_path / "samples.bin"
    path.write_bytes(b"".join(b"HEADR" + ids[i : i + 3].tobytes() for i in range(0, 30, 3)))
    runs = np.arange(10)
    extents = Extents(
        dtype=ids.dtype,
        buffers=(np.memmap(path, np.uint8, mode="r"),),
        paths=(path,),
        file_offset_bytes=(0,),
        buffer=np.zeros(10, np.int64),
        offset_bytes=5 + runs * 11,
        first=np.arange(11) * 3,
    )
    reader = kind(extents)
    for width in (1, 2, 3, 4, 7, 30):
        starts = np.arange(30 - width + 1)
        assert reader.gather(starts, width).tolist() == [ids[s : s + width].tolist() for s in starts]
    spans = np.array([[3, 4], [0, 30], [29, 1], [8, 2], [3, 3]])
    expected = [token for start, length in spans for token in ids[start : start + length].tolist()]
    assert reader.gather_spans(spans[:, 0], spans[:, 1]).tolist() == expected


@pytest.mark.parametrize("kind", READERS)
def test_span_outside_is_refused(kind: type[Reader], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype="<u2"))
    reader = kind(extents_of(np.load(tmp_path / "a.npy", mmap_mode="r")))
    for start in (-1, 7, 10):
        with pytest.raises(IndexError):
            reader.gather(np.array([0, start]), 4)
        with pytest.raises(IndexError):
            reader.gather_spans(np.array([0, start]), np.array([2, 4]))
    assert reader.gather(np.array([6]), 4).tolist() == [[6, 7, 8, 9]]
    assert reader.gather(np.array([], np.int64), 4).shape == (0, 4)


@pytest.fixture
def big(tmp_path: Path) -> np.memmap:
    """64 MB of tokens on disk."""
    path = tmp_path / "big.npy"
    tokens = np.lib.format.open_memmap(path, "w+", np.dtype("<u2"), (1 << 25,))
    tokens[:] = np.arange(1 << 25).astype("<u2")
    tokens.flush()
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("kind", READERS)
def test_near_and_distant_spans_are_read(kind: type[Reader], big: np.memmap) -> None:
    """A span of 12 MB is more than one read takes in."""
    reader = kind(extents_of(big))
    starts = np.array([5_000_000, *range(0, 6_000_000, 1024), 3, 3, 20_000_000])
    found = reader.gather(starts, 1025)
    expected = (starts[:, None] + np.arange(1025)).astype("<u2")
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", READERS)
def test_open_file_that_is_replaced_stays_as_it_was(kind: type[Reader], tmp_path: Path) -> None:
    tokens = saved(tmp_path, np.arange(1000, dtype="<u2"), [1000])
    reader = kind(extents_of(tokens))
    assert reader.gather(np.array([1]), 2).tolist() == [[1, 2]]
    np.save(tmp_path / "new.npy", np.zeros(10, "<u2"))
    (tmp_path / "new.npy").rename(tmp_path / "0.npy")
    assert reader.gather(np.array([998]), 2).tolist() == [[998, 999]]


@pytest.mark.parametrize(
    ("change", "code"), [("replaced", "changed-while-read"), ("removed", "file-unreadable")]
)
def test_pread_opens_no_other_file_than_the_set_had(
    change: str, code: str, tmp_path: Path, golden: Golden
) -> None:
    """Shards are opened when they are first read."""
    reader = PositionalReader(extents_of(saved(tmp_path, np.arange(200, dtype="<u2"), [100, 100])))
    assert reader.gather(np.array([1]), 2).tolist() == [[1, 2]]
    np.save(tmp_path / "new.npy", np.full(100, 7, "<u2"))
    (tmp_path / "1.npy").unlink()
    if change == "replaced":
        (tmp_path / "new.npy").rename(tmp_path / "1.npy")
    with golden.refused(code):
        reader.gather(np.array([150]), 2)
    assert reader.gather(np.array([3]), 2).tolist() == [[3, 4]]


def test_pread_of_a_file_that_ends_early_is_refused(tmp_path: Path, golden: Golden) -> None:
    reader = PositionalReader(extents_of(saved(tmp_path, np.arange(1000, dtype="<u2"), [1000])))
    reader.gather(np.array([1]), 2)
    os.truncate(tmp_path / "0.npy", 1128)
    with golden.refused("truncated-while-read"):
        reader.gather(np.array([499]), 5)


@pytest.mark.parametrize("kind", [*READERS, InMemoryReader])
def test_truncated_file_is_refused_when_it_is_opened(
    kind: type[Reader], tmp_path: Path, golden: Golden
) -> None:
    """A map of it would end the process by SIGBUS."""
    extents = extents_of(saved(tmp_path, np.arange(1000, dtype="<u2"), [1000]))
    os.truncate(tmp_path / "0.npy", 2000)
    with golden.refused("changed-while-read"):
        kind(extents)


ON_ITS_OWN = """
import sys
import numpy as np
from data_loading.readers.extents import extents_of
from data_loading.readers.mapped import MappedReader
from data_loading.readers.positional import PositionalReader
def rss_file():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssFile"))
def high_water():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
def high_water_begins():
    open("/proc/self/clear_refs", "w").write("5")
    return high_water()
tokens = np.load(sys.argv[1], mmap_mode="r")
bound = int(sys.argv[3])
reader = (
    PositionalReader(extents_of(tokens), at_random=True) if sys.argv[2] == "pread"
    else MappedReader(extents_of(tokens), at_random=True, max_resident_bytes=bound or None)
)
order, most = np.random.default_rng(0), 0
reader.gather(order.integers(0, 1000, 32), 129)
before = rss_file()
begins = high_water_begins()
windows = int(sys.argv[5])
for _ in range(16000 // windows):  # touches nearly every 64 KB, which is what a fault maps
    starts = order.integers(0, len(tokens) - 129, windows)
    if sys.argv[4] == "spans":
        rows = reader.gather_spans(starts, np.full(windows, 129)).reshape(windows, 129)
    else:
        rows = reader.gather(starts, 129)
    assert rows[5, 7] == (starts[5] + 7) % 65536
    most = max(most, rss_file() - before)
print(most, high_water() - begins)
"""


@pytest.mark.parametrize(
    ("kind", "bound_mb", "how", "at_most_kb", "windows"),
    [("mmap", 0, "rows", None, 32), ("mmap", 8, "rows", 9000, 32), ("mmap", 24, "spans", 25_000, 2000),
     ("pread", 0, "rows", 500, 32),
     *(pytest.param(*case, marks=pytest.mark.slow) for case in (
         ("mmap", 24, "rows", 25_000, 32), ("mmap", 24, "rows", 25_000, 2000), ("mmap", 8, "spans", 9000, 32),
         ("pread", 0, "spans", 500, 32),
     ))],
)  # fmt: skip
def test_rss_that_maps_add_can_be_bounded(
    kind: str, bound_mb: int, how: str, at_most_kb: int | None, windows: int, big: np.memmap
) -> None:
    """All 64 MB are in the page cache and get mapped, except with a bound or pread. The kernel's high-water
    mark shows it for each moment; it includes a few MB of what is read."""
    assert big.filename is not None
    done = subprocess.run(
        [sys.executable, "-c", ON_ITS_OWN, str(big.filename), kind, str(bound_mb << 20), how, str(windows)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown_kb, high_water_kb = map(int, done.stdout.split())
    if at_most_kb is None:
        assert grown_kb > 55_000, "there is something to bound"
    else:
        assert grown_kb <= at_most_kb
        assert high_water_kb <= at_most_kb + 4000


@pytest.mark.parametrize("kind", READERS)
def test_hint_makes_the_kernel_read_ahead(kind: type[Reader], big: np.memmap) -> None:
    """Dropped from the page cache, requested ahead, the pages are there before they are read."""
    assert big.filename is not None
    with open(big.filename, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    reader = kind(extents_of(big), at_random=True)  # type: ignore[call-arg]
    starts = np.arange(100_000, 30_000_000, 1_000_000)
    if cached(big, starts).mean() > 0.5:
        pytest.skip("this file system keeps its pages whatever the hints")
    reader.will_need(starts, 1025)
    deadline = time.monotonic() + 60
    while not cached(big, starts).all() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cached(big, starts).all()
    assert cached(big, starts + 500_000).mean() < 0.2, "nothing next to it"


def cached(tokens: np.memmap, starts: np.ndarray) -> np.ndarray:
    """Whether the pages at these tokens are in the page cache (mincore(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    base = tokens.ctypes.data - tokens.offset
    pages = (tokens.offset + tokens.nbytes + 4095) // 4096
    vector = (ctypes.c_ubyte * pages)()
    assert libc.mincore(ctypes.c_void_p(base), ctypes.c_size_t(pages * 4096), vector) == 0
    return np.frombuffer(vector, np.uint8)[(starts * 2 + tokens.offset) // 4096] & 1 > 0
