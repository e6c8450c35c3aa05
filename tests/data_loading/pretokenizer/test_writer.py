"""Token files of every form hold the same tokens and starts, also when writing goes on from any block."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer import writer
from data_loading.pretokenizer.blocks import EncodedBlock
from data_loading.pretokenizer.manifest import document_starts
from data_loading.pretokenizer.writer import SetWriter, Written, crc_of_files
from data_loading.tokens.npy import open_npy
from data_loading.tokens.shard_layout import ONE_FILE, Layout
from tests.searched import examples

DTYPE = np.dtype("<u2")

documents_of = st.lists(st.integers(1, 12), min_size=1, max_size=20)
"""Tokens of each document."""


def blocks_of(lengths: list[int], cuts: list[int]) -> list[EncodedBlock]:
    """Tokens 0, 1, 2 ... in blocks that end at these places, wherever documents end."""
    total, ends = sum(lengths), np.cumsum(lengths)
    borders = sorted({0, total, *(cut % total for cut in cuts)})
    return [
        EncodedBlock(
            index,
            np.arange(start, stop).astype(DTYPE),
            ends[(ends > start) & (ends <= stop)].astype(np.int64) - start,
        )
        for index, (start, stop) in enumerate(itertools.pairwise(borders))
    ]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=examples(200))
@given(
    lengths=documents_of,
    cuts=st.lists(st.integers(0, 300), max_size=12),
    shard_tokens=st.one_of(st.none(), st.integers(1, 40)),
    stop=st.integers(0, 12),
    garbage=st.integers(0, 30),
    checksum=st.sampled_from([6, 16]),
)
def test_any_form_from_any_block_on(
    lengths: list[int],
    cuts: list[int],
    shard_tokens: int | None,
    stop: int,
    garbage: int,
    checksum: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, layout = tmp_path_factory.mktemp("set"), Layout(shard_tokens)
    blocks = blocks_of(lengths, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "CHECKSUM_BYTES", checksum)
        whole = SetWriter(folder, DTYPE, layout=layout)
        states: list[tuple[Written, list[str]]] = [(whole.written, [])]
        for block in blocks:
            crc = whole.append(block)
            before = states[-1][0]
            assert crc_of_files(folder, DTYPE, before, whole.written, layout) == crc
            states.append((whole.written, list(whole.checksums)))
        whole.finish()
        undisturbed = files_in(folder)

        # The same again, cut off after some blocks with more in the files than counts, and gone on with.
        for path in folder.iterdir():
            path.unlink()
        stop = min(stop, len(blocks))
        first = SetWriter(folder, DTYPE, layout=layout)
        for block in blocks[:stop]:
            first.append(block)
        done, checksums = states[stop]
        if stop < len(blocks):
            first.append(blocks[stop])
        first.abandon()
        for path in folder.iterdir():
            with open(path, "ab") as file:
                file.write(b"x" * garbage)
        for shard in range(layout.last_shard(done.tokens)):  # finished: nothing was written behind them
            for name in layout.names(shard):
                (folder / name).write_bytes(undisturbed[name])
        again = SetWriter(folder, DTYPE, done, checksums, layout)
        for block in blocks[stop:]:
            again.append(block)
        again.finish()
    assert files_in(folder) == undisturbed
    assert again.checksums == whole.checksums
    assert again.written == whole.written

    total = sum(lengths)
    shards = range(layout.last_shard(total) + 1)
    tokens = np.concatenate([open_npy(folder / layout.names(shard)[0]) for shard in shards])
    assert np.array_equal(tokens, np.arange(total))
    if shard_tokens is not None:
        sizes = [len(open_npy(folder / layout.names(shard)[0])) for shard in shards]
        assert sizes[:-1] == [shard_tokens] * (len(sizes) - 1)
    starts = document_starts(folder, layout, whole.written)
    assert starts[: len(starts)].tolist() == [0, *np.cumsum(lengths).tolist()[:-1]]
    assert whole.written.documents == len(lengths)


@pytest.mark.parametrize("layout", [ONE_FILE, Layout(10)])
def test_lost_data_are_not_taken_for_written(layout: Layout, tmp_path: Path) -> None:
    one, other = blocks_of([30, 7], [15])
    lost = SetWriter(tmp_path, DTYPE, layout=layout)
    lost.append(one)
    before = lost.written
    crc = lost.append(other)
    after = lost.written
    lost.finish()
    assert crc_of_files(tmp_path, DTYPE, before, after, layout) == crc
    for name in layout.names(layout.last_shard(37)):
        path = tmp_path / name
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert crc_of_files(tmp_path, DTYPE, before, after, layout) != crc
        path.write_bytes(data[:-1])
        assert crc_of_files(tmp_path, DTYPE, before, after, layout) is None
        path.unlink()
        assert crc_of_files(tmp_path, DTYPE, before, after, layout) is None
        path.write_bytes(data)


def test_a_header_that_was_lost_is_mended(tmp_path: Path) -> None:
    layout = Layout(10)
    first = SetWriter(tmp_path, DTYPE, layout=layout)
    blocks = blocks_of([4] * 10, [25])
    first.append(blocks[0])
    done = first.written
    first.abandon()
    for name in layout.names(0):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(bytes(128) + data[128:])
    again = SetWriter(tmp_path, DTYPE, done, first.checksums, layout)
    again.append(blocks[1])
    again.finish()
    assert open_npy(tmp_path / "shard_00000.npy").tolist() == list(range(10))
    assert open_npy(tmp_path / "shard_00000.docs.npy").tolist() == [0, 4, 8]
    assert open_npy(tmp_path / "shard_00001.docs.npy").tolist() == [2, 6]


def test_documents_without_tokens_are_counted_as_before(tmp_path: Path) -> None:
    """A tokenizer may leave nothing of a text."""
    made = SetWriter(tmp_path, DTYPE)
    made.append(EncodedBlock(0, np.arange(4).astype(DTYPE), np.array([2, 2, 4])))
    made.append(EncodedBlock(1, np.arange(0).astype(DTYPE), np.array([0])))
    made.append(EncodedBlock(2, np.arange(3).astype(DTYPE), np.array([1, 3])))
    made.finish()
    assert open_npy(tmp_path / "docs.npy").tolist() == [0, 2, 2, 4, 4, 5]
    assert made.written.documents == 6
