"""Runs at any byte of any file are one array, for slices, single values and each reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.import_formats.byte_ranges import Places, Runs, starts_at
from data_loading.readers.in_memory import InMemoryReader
from data_loading.readers.mapped import MappedReader
from data_loading.readers.positional import PositionalReader
from data_loading.tokens.lazy_array import search, take
from tests.golden_text import Golden
from tests.searched import examples

some_runs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=9
)
"""(file, tokens, bytes of something else before it) of each run."""


@settings(max_examples=examples(60))
@given(
    runs=some_runs,
    dtype=st.sampled_from(["<u2", "<u4", "<i4", "<i8", "u1"]),
    width=st.integers(1, 40),
    data=st.data(),
)
def test_one_array(
    runs: list[tuple[int, int, int]], dtype: str, width: int, data: st.DataObject, tmp_path: Path
) -> None:
    runs = [*runs, (0, 3, 1)]
    kind, contents, offsets, whole = np.dtype(dtype), [b"x", b"yy", b"z"], [], np.empty(0, dtype)
    for number, (file, tokens, gap) in enumerate(runs):
        ids = (np.arange(tokens) + 10 * number).astype(kind)
        contents[file] += b"?" * gap
        offsets.append(len(contents[file]))
        contents[file] += ids.tobytes()
        whole = np.concatenate([whole, ids])
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    files, lengths, _ = np.array(runs, np.int64).T
    values = Runs(kind, paths, files, np.array(offsets), lengths)
    assert len(values) == len(whole)
    start, stop = sorted(data.draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=2)))
    assert values[start:stop].tolist() == whole[start:stop].tolist()
    places = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=9)), np.int64)
    assert take(values, places).tolist() == whole[places].tolist()
    width = min(width, len(whole))
    starts = np.array(data.draw(st.lists(st.integers(0, len(whole) - width), max_size=9)), np.int64)
    for reader in (
        MappedReader(values.extents),
        PositionalReader(values.extents),
        InMemoryReader(values.extents),
    ):
        found = reader.gather(starts, width)
        assert found.tolist() == [whole[at : at + width].tolist() for at in starts], reader.name


@given(
    lengths=st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=5),
    unit=st.sampled_from([1, 2, 8]),
    wanted=st.lists(st.integers(0, 60), max_size=9),
)
def test_starts(lengths: list[list[int]], unit: int, wanted: list[int]) -> None:
    """Byte or token offsets of each file, whatever they begin at."""
    parts, expected, first = [], [], 0
    for number, part in enumerate(lengths):
        inner = np.cumsum([0, *part])[:-1].astype("<u4" if number % 2 else "<i8")
        parts.append(Places(inner * unit + number * unit, unit, first - number))
        expected += (inner.astype(int) + first).tolist()
        first += sum(part)
    values = starts_at(parts)
    assert values[:].tolist() == expected
    assert search(values, np.array(wanted, np.int64)).tolist() == np.searchsorted(expected, wanted).tolist()
    places = np.arange(len(expected))[::-1]
    assert take(values, places).tolist() == expected[::-1]


def test_file_that_is_truncated_while_it_is_read_is_an_error(tmp_path: Path, golden: Golden) -> None:
    import os

    path = tmp_path / "a.bin"
    path.write_bytes(bytes(200_000))
    values = Runs.of_files(np.dtype("<u2"), [path], 1024)
    reader = PositionalReader(values.extents)
    reader.gather(np.array([0]), 10)
    os.truncate(path, 5000)
    with golden.refused("truncated-while-read"):
        reader.gather(np.array([90_000]), 10)


def test_starts_beyond_the_range_of_a_format() -> None:
    """Offsets of uint32, and a place that they cannot hold."""
    parts = [Places(np.array([0, 2**32 - 1], "<u4"), 1, 0), Places(np.array([0], "<u4"), 1, 2**33)]
    values = starts_at(parts)
    wanted = [0, 1, 2**32 - 1, 2**32, 2**33, 2**33 + 1]
    assert search(values, np.array(wanted)).tolist() == [0, 1, 1, 2, 2, 3]
