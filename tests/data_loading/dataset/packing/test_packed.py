"""Windows of whole documents are those of a few lines of Python, and nothing is lost."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import StreamingDataset
from data_loading.dataset.batch_kinds import cumulative_lengths
from data_loading.dataset.packing import pieces
from data_loading.dataset.split_data import Data, split_data
from data_loading.tokens.shards import Shards
from data_loading.tokens.token_set import TokenSet
from tests.golden_text import Golden, refused
from tests.searched import examples

EOT = 0
Batch = dict[str, torch.Tensor]


def make_data(
    folder: Path, lengths: list[int], listed: bool = True, shards: int = 1, ranges: list[int] | None = None
) -> Data:
    """Documents of ids that say where they stand, each with the end-of-text id 0 behind it. ranges: borders
    of those that are train.
    """
    ids = np.arange(1, sum(lengths) + 1).astype("<u4")
    starts = np.cumsum([0, *lengths])[:-1].astype("<u8")
    ids[np.cumsum(lengths) - 1] = EOT
    cuts = np.linspace(0, len(ids), shards + 1).astype(int)
    name = f"{sum(lengths)}-{shards}-"
    parts, begun = [], []
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        path = folder / f"{name}{number or ''}.npy"
        np.save(path, ids[a:b])
        parts.append(np.load(path, mmap_mode="r"))
        begun.append(starts[(starts >= a) & (starts < b)] - np.uint64(a))
    documents = Shards(begun, cuts[:-1].tolist()) if shards > 1 else starts
    tokens = Shards(parts) if shards > 1 else parts[0]
    found = TokenSet(
        folder / f"{name}.npy", tokens, documents if listed else None, None, len(ids) + 1, repr(lengths)
    )
    data = dataclasses.replace(split_data(found, None, None, 1), eot_id=EOT)
    borders = ranges or [0, len(ids)]
    train = tuple(range(a, b) for a, b in zip(borders[::2], borders[1::2], strict=True))
    return dataclasses.replace(data, train_ranges=train)


def documents_in(data: Data, lengths: list[int]) -> list[range]:
    """What the train split has of each document."""
    found = []
    for part in data.train_ranges:
        for stop, length in zip(np.cumsum(lengths).tolist(), lengths, strict=True):
            start, end = max(stop - length, part.start), min(stop, part.stop)
            if start < end:
                found.append(range(start, end))
    return found


def opened(data: Data, seq_len: int, **how: Any) -> StreamingDataset:
    return StreamingDataset(data, "train", seq_len, documents="separate", **how)


some_lengths = st.lists(st.integers(1, 40) | st.sampled_from([1, 8, 9, 16, 17]), min_size=2, max_size=40)


@settings(max_examples=examples(80))
@given(
    lengths=some_lengths,
    seq_len=st.integers(1, 30) | st.just(8),
    shift=st.integers(1, 4),
    listed=st.booleans(),
    shards=st.integers(1, 3),
    block=st.sampled_from([3, 7, 1 << 17]),
    reader=st.sampled_from(["mmap", "pread"]),
    data=st.data(),
)
def test_each_label_inside_a_document_is_predicted_once(
    lengths: list[int],
    seq_len: int,
    shift: int,
    listed: bool,
    shards: int,
    block: int,
    reader: str,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """Borders of ranges may lie inside documents. A token's place is its id, but at a document's end."""
    total = sum(lengths)
    if total < 4:
        return
    borders = data.draw(st.lists(st.integers(0, total), min_size=2, max_size=6, unique=True).map(sorted))
    split = make_data(tmp_path, lengths, listed, shards, borders[: len(borders) // 2 * 2])
    documents = documents_in(split, lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECES_OF_A_BLOCK", block)
        patch.setattr(pieces, "_READ_STARTS", block)
        patch.setattr(pieces, "_READ_TOKENS", block)
        # What was made with other blocks is another packing; here it would be taken for the same.
        patch.setattr("data_loading.dataset.packing.index.ALGORITHM", f"blocks of {block}")
        expected = Counter((at, at + shift) for d in documents for at in d if at + shift < d.stop)
        if not expected:
            with refused("too-few-tokens"):
                opened(split, seq_len, shift=shift)
            return
        dataset = opened(split, seq_len, shift=shift, order="sequential", reader=reader)
    batches = [dataset.read(0, i, min(i + 2, len(dataset))) for i in range(0, len(dataset), 2)]
    for batch in batches:
        assert torch.equal(batch["cu_seqlens"], cumulative_lengths((batch["position_ids"] == 0).numpy()))
    batch = dataset.join(batches)
    found: Counter[tuple[int, int]] = Counter()
    borders_found, inputs = [0], 0
    for row in range(len(dataset)):
        for segment in segments(batch, row):
            borders_found.append(row * seq_len + segment.stop)
            ids, labels = (batch[name][row, segment.start : segment.stop].tolist() for name in BOTH)
            if ids[0] == EOT:  # no piece begins with the end of its document, which has no label
                assert segment.stop == seq_len, "padding is the last of its row"
                assert ids == [EOT] * len(ids)
                assert labels == [-100] * len(ids)
                continue
            start = ids[0] - 1
            inputs += len(ids)
            whole = next(d for d in documents if start in d)
            assert (start - whole.start) % seq_len == 0
            assert len(ids) == min(seq_len, whole.stop - start)
            for t, (token, label) in enumerate(zip(ids, labels, strict=True)):
                assert token == id_of(start + t, lengths)
                if start + t + shift < whole.stop:
                    assert label == id_of(start + t + shift, lengths)
                    found[start + t, start + t + shift] += 1
                else:
                    assert label == -100
    assert found == expected
    assert batch["cu_seqlens"].tolist() == borders_found
    assert batch["cu_seqlens"].dtype == torch.int32
    assert dataset.packing_efficiency == pytest.approx(inputs / (len(dataset) * seq_len))


BOTH = ("input_ids", "labels")


def id_of(place: int, lengths: list[int]) -> int:
    return EOT if place + 1 in np.cumsum(lengths) else place + 1


def segments(batch: Batch, row: int) -> list[range]:
    """Where position_ids begin anew, which must ascend by one."""
    positions = batch["position_ids"][row].tolist()
    begins = [t for t, position in enumerate(positions) if position == 0]
    found = [range(a, b) for a, b in itertools.pairwise([*begins, len(positions)])]
    assert positions == [t - part.start for part in found for t in part]
    return found


@settings(max_examples=examples(20))
@given(lengths=st.lists(st.integers(2, 30), min_size=20, max_size=60), world=st.integers(1, 3))
def test_an_epoch_of_all_ranks_and_a_resume_is_each_row_once(
    lengths: list[int], world: int, tmp_path: Path
) -> None:
    data = make_data(tmp_path, lengths)
    dataset = opened(data, 16, order="shuffled_blocks", block_windows=4)
    state, labels = None, []
    while state is None or state["samples"] < len(dataset):
        loaders = [dataset.loader(2, rank, world, num_batches=2) for rank in range(world)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
            labels += [label for batch in loader for label in batch["labels"].flatten().tolist()]
        state = loaders[0].state_dict()
        dataset, world = opened(data, 16, order="shuffled_blocks", block_windows=4), 1 + world % 3
    documents = documents_in(data, lengths)
    expected = sorted(id_of(at, lengths) for d in documents for at in d[1:])
    assert sorted(label for label in labels if label != -100) == expected


def test_pickled_copy_reads_the_same(tmp_path: Path) -> None:
    dataset = opened(make_data(tmp_path, [7, 30, 2, 11, 19, 16, 5] * 5), 16, seed=3)
    copy = pickle.loads(pickle.dumps(dataset))
    for mine, theirs in zip(dataset.loader(3), copy.loader(3), strict=True):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    order = dataset.window_at(range(len(dataset)), 0).tolist()
    assert order != sorted(order)
    assert sorted(order) == list(range(len(dataset)))


@pytest.mark.parametrize("reader", ["pread", "memory"])
def test_each_reader_gives_the_same_batches(reader: str, tmp_path: Path, golden: Golden) -> None:
    data = make_data(tmp_path, [7, 30, 2, 11, 19, 16, 5] * 5, shards=2)
    for order in ("shuffled", "sequential"):
        mapped, other = (opened(data, 16, reader=name, order=order) for name in ("mmap", reader))
        golden.text(other.reader)
        for mine, theirs in zip(mapped.loader(3), other.loader(3), strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_filled_up_tail_has_no_labels(tmp_path: Path) -> None:
    dataset = opened(make_data(tmp_path, [16] * 5), 16)
    *_, last = dataset.loader(3, tail="pad")
    assert (last["labels"] != -100).sum(1).tolist() == [15, 15, 0]


def test_one_sample_has_its_own_borders(tmp_path: Path) -> None:
    sample = opened(make_data(tmp_path, [10, 4, 9, 3]), 16, order="sequential")[0]
    assert sample["input_ids"].shape == (16,)
    assert sample["cu_seqlens"].tolist() == [0, 10, 14, 16]


def test_hints_precede_reads(tmp_path: Path) -> None:
    """Spans of the documents, neither cut short nor many times too long."""
    lengths = [700, 30, 2000, 11, 190, 16, 5] * 20
    dataset = opened(make_data(tmp_path, lengths), 1024)
    told: list[tuple[int, int]] = []
    reader = dataset._reader
    reader.will_need = lambda starts, width: told.extend((start, width) for start in starts.tolist())  # type: ignore[method-assign]
    dataset.will_need(0, 0, len(dataset))
    expected = []
    for start, length in zip(np.cumsum([0, *lengths]).tolist(), lengths, strict=False):
        expected += [(start + at, min(length - at, 1025)) for at in range(0, length - 1, 1024)]
    for (start, width), (begin, length) in zip(sorted(told), sorted(expected), strict=True):
        assert start == begin
        assert length <= width <= max(2 * length, 512)


@pytest.mark.parametrize(
    ("how", "code"),
    [({"windows": "streams", "step_windows": 2}, "documents-need-plain-windows"),
     ({"windows": "shifted", "step_windows": 2}, "documents-need-plain-windows"),
     ({"stride": 16}, "stride-with-separate"),
     ({"order": "mixed"}, "order-unknown")],
)  # fmt: skip
def test_what_does_not_go_together(how: dict[str, Any], code: str, tmp_path: Path, golden: Golden) -> None:
    with golden.refused(code):
        opened(make_data(tmp_path, [20, 30]), 16, **how)


def test_a_set_that_tells_no_documents_is_refused(tmp_path: Path, golden: Golden) -> None:
    data = dataclasses.replace(make_data(tmp_path, [20, 30], listed=False), eot_id=None)
    with golden.refused("document-starts-unknown"):
        opened(data, 16)


def test_starts_that_do_not_ascend_are_refused(tmp_path: Path, golden: Golden) -> None:
    data = make_data(tmp_path, [20, 30, 5, 40])
    damaged = dataclasses.replace(data.train, documents=np.array([0, 50, 20, 55], "<u8"))  # type: ignore[type-var]
    with golden.refused("document-starts-damaged"):
        opened(dataclasses.replace(data, train=damaged), 16)


def test_an_id_that_the_tokens_cannot_hold_is_no_padding(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1, 13, dtype="<u2"))
    found = TokenSet(
        tmp_path / "a.npy", np.load(tmp_path / "a.npy", mmap_mode="r"), np.array([0, 5], "<u8"), None, 99, "f"
    )
    data = dataclasses.replace(split_data(found, None, None, 1), eot_id=70_000)
    batch = opened(data, 16)[0]
    assert batch["input_ids"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0]


def test_other_rows_are_another_stream(tmp_path: Path) -> None:
    data = make_data(tmp_path, [20, 30, 5, 40])
    prints = {
        StreamingDataset(data, "train", 16, documents=documents, shift=shift).fingerprint
        for documents in ("across", "masked", "separate")
        for shift in (1, 2)
    }
    assert len(prints) == 6
    assert StreamingDataset(data, "train", 16).packing_efficiency is None
