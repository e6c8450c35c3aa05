"""Each reader gives the tokens that a slice gives, whichever runs they lie in."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.readers.extents import Extents, extents_of
from data_loading.readers.mapped import MappedReader
from data_loading.readers.reader import Reader
from data_loading.shards import Shards

READERS = [MappedReader]


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    width=st.integers(1, 60),
    dtype=st.sampled_from(["<u2", "<u4", "<i4", "<i8"]),
    seed=st.integers(0, 9),
)
def test_spans_are_slices(
    kind: type[Reader], lengths: list[int], width: int, dtype: str, seed: int, tmp_path: Path
) -> None:
    whole = np.random.default_rng(seed).integers(0, 60_000, sum(lengths)).astype(dtype)
    cuts = np.cumsum([0, *lengths])
    parts = []
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        np.save(tmp_path / f"{number}.npy", whole[a:b])
        parts.append(np.load(tmp_path / f"{number}.npy", mmap_mode="r"))
    width = min(width, len(whole))
    starts = np.random.default_rng(seed).integers(0, len(whole) - width + 1, 20)
    for tokens in (parts[0], Shards(parts)):
        reader = kind(extents_of(tokens))
        inside = starts[starts + width <= len(tokens)]
        found = reader.gather(inside, width)
        assert (found.dtype, found.shape) == (np.dtype(dtype), (len(inside), width))
        assert found.tolist() == [whole[start : start + width].tolist() for start in inside]


@pytest.mark.parametrize("kind", READERS)
def test_runs_may_lie_anywhere_in_a_file(kind: type[Reader], tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", READERS)
def test_what_is_outside_is_refused(kind: type[Reader], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype="<u2"))
    reader = kind(extents_of(np.load(tmp_path / "a.npy", mmap_mode="r")))
    for start in (-1, 7, 10):
        with pytest.raises(IndexError, match="of 10 were asked for"):
            reader.gather(np.array([0, start]), 4)
    assert reader.gather(np.array([6]), 4).tolist() == [[6, 7, 8, 9]]
    assert reader.gather(np.array([], np.int64), 4).shape == (0, 4)
