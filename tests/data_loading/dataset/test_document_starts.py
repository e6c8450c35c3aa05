"""Documents are told apart where they begin, whichever side of them the id between them is on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conf import schema
from data_loading import StreamingDataset, prepare_data
from data_loading.dataset.document_starts import DocumentStarts, Separator, separator_of
from data_loading.dataset.packing.pieces import borders_of
from data_loading.dataset.split_data import Data, split_data
from data_loading.find.open_tokens import open_tokens
from data_loading.import_formats.read_llm_c import HEADER_BYTES, KINDS
from tests.data_loading.export_formats.conftest import EOT, tokenized, written
from tests.golden_text import Golden
from tests.searched import examples

DOCUMENTS = [[n % 200 + 1] * (n % 7 + 2) for n in range(300)]
BATCH = 8


def llm_c_file(path: Path, ids: list[int], kind: int = 0) -> Path:
    """As llm.c's data_common.py writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(KINDS[kind].header(len(ids)) + np.array(ids, KINDS[kind].dtype).tobytes())
    assert path.stat().st_size > HEADER_BYTES
    return path


def before(mark: int) -> list[int]:
    return [number for document in DOCUMENTS for number in (mark, *document)]


def after(mark: int) -> list[int]:
    return [number for document in DOCUMENTS for number in (*document, mark)]


def raw(path: Path, ids: list[int]) -> Path:
    np.array(ids, "<u2").tofile(path)
    return path


def batches(data: Data, **how: Any) -> list[dict[str, np.ndarray]]:
    dataset = StreamingDataset(data, "train", 32, order="sequential", **how)
    return [
        {name: values.numpy() for name, values in dataset.read_at(0, [at]).items()}
        for at in range(len(dataset))
    ]


def opened(path: Path, tokenizer: schema.Tokenizer | None = None, **how: Any) -> Data:
    dataset = schema.Dataset(source="text", path=str(path), **how)
    return prepare_data(dataset, tokenizer or schema.Tokenizer(name="bytes"), tokenize=False)


@settings(max_examples=examples(60))
@given(
    documents=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=2, max_size=12),
    is_before=st.booleans(),
    split=st.integers(0, 40),
)
def test_borders_are_where_documents_begin(documents: list[list[int]], is_before: bool, split: int) -> None:
    whole = [[10, *ids] if is_before else [*ids, 10] for ids in documents]
    starts = np.cumsum([0, *map(len, whole)])[:-1]
    tokens = np.concatenate(whole)
    split = min(split, len(tokens) - 1)
    ranges = [range(split), range(split, len(tokens))] if split else [range(len(tokens))]
    found = np.concatenate(list(borders_of(ranges, tokens, None, 10, is_before=is_before)))
    assert sorted({*found.tolist()}) == sorted({*starts.tolist(), split, len(tokens)})

    class Lone:
        documents = None

    marks = DocumentStarts(Lone(), Separator(10, is_before)).marks(np.zeros(1, int), tokens[None])  # type: ignore[arg-type]
    assert np.flatnonzero(marks).tolist() == starts.tolist()


@pytest.mark.parametrize(
    ("ids", "eot", "bos", "expected"),
    [
        ([9, 1, 2, 9, 3, 4], 9, None, Separator(9, is_before=True)),
        ([1, 2, 9, 3, 4, 9], 9, None, Separator(9)),
        ([2, 9, 3, 4], 9, None, Separator(9)),
        ([9, 1, 9, 2, 9], 9, None, Separator(9)),
        ([8, 1, 2, 8, 3], 9, 8, Separator(8, is_before=True)),
        ([1, 2, 8, 3], 9, 8, Separator(8, is_before=True)),
        ([8, 1, 9, 8, 3, 9], 9, 8, Separator(8, is_before=True)),
        ([1, 9, 8, 3, 9], 9, 8, Separator(9)),
    ],
)
def test_side_of_the_id_is_seen_in_raw_files(
    ids: list[int], eot: int, bos: int | None, expected: Separator, tmp_path: Path
) -> None:
    assert separator_of(open_tokens(raw(tmp_path / "a.bin", ids), 10), eot, bos) == expected


def test_tokens_without_the_id_are_refused(tmp_path: Path, golden: Golden) -> None:
    tokens = open_tokens(raw(tmp_path / "a.bin", [1, 2, 3, 4]), 10)
    with golden.refused("separator-not-found"):
        separator_of(tokens, 9, 8)
    assert separator_of(tokens, 9, 8, required=False) == Separator(9)
    with golden.refused("document-starts-unknown"):
        separator_of(tokens, None)


@pytest.mark.parametrize("documents", ["masked", "separate"])
def test_llm_c_divides_like_the_set_it_was_made_from(documents: str, tmp_path: Path) -> None:
    path = tokenized(tmp_path / "a.txt", " ".join(f"word{n * 7919}" for n in range(400)))
    made = open_tokens(path)
    written("llm.c", tmp_path / "a.llm.c", made)  # type: ignore[arg-type]
    own, exported = opened(path), opened(tmp_path / "a.llm.c")
    assert exported.train.documents is None
    ours, theirs = batches(own, documents=documents), batches(exported, documents=documents)
    assert len(ours) == len(theirs) > 20
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one["position_ids"], other["position_ids"])
        assert np.array_equal(one["cu_seqlens"], other["cu_seqlens"])
        begins = (other["position_ids"] == 0) & (other["labels"] != -100)
        assert set(other["input_ids"][0, 1:][begins[0, 1:]]) <= {EOT}


@pytest.mark.parametrize(("kind", "mark"), [(0, 50_256), (1, 128_000)])
@pytest.mark.parametrize("is_raw", [False, True])
def test_files_of_llm_c_and_raw_files_begin_documents_with_the_id(
    kind: int, mark: int, is_raw: bool, tmp_path: Path
) -> None:
    if is_raw:
        path = tmp_path / "a.bin"
        np.array(before(mark), KINDS[kind].dtype).tofile(path)
        tokens = open_tokens(path, KINDS[kind].ids, KINDS[kind].dtype.name)
        data = split_data(tokens, None, None, 0.1)
        object.__setattr__(data, "eot_id", mark)
    else:
        data = split_data(open_tokens(llm_c_file(tmp_path / "a.bin", before(mark), kind)), None, None, 0.1)
    for batch in batches(data, documents="masked"):
        first = batch["position_ids"][0] == 0
        assert (batch["input_ids"][0, 1:] == mark).tolist() == first[1:].tolist()


def test_run_reads_files_with_a_begin_of_text_id(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    """The tokenizer's end of text does not occur; its bos_token is between documents."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((tokenizer_folder("gpt2") / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "a", "eos_token": "<|endoftext|>"})
    )
    spec = schema.Tokenizer(name="t", path=str(folder))
    mark = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["a"]
    ids = [300 if number == mark else number for number in before(301)]
    path = raw(tmp_path / "a.bin", [mark if number == 301 else number for number in ids])
    data = opened(path, spec, dtype="uint16")
    assert data.bos_id == mark
    batch = batches(data, documents="masked")[0]
    assert (batch["input_ids"][0, 1:] == mark).tolist() == (batch["position_ids"][0, 1:] == 0).tolist()


def test_fingerprint_of_the_stream_differs_only_where_borders_moved(tmp_path: Path) -> None:
    one, other = opened(raw(tmp_path / "a.bin", before(EOT))), opened(raw(tmp_path / "b.bin", after(EOT)))
    for documents in ("masked", "separate"):
        names = [
            StreamingDataset(data, "train", 32, documents=documents).fingerprint.partition(", ")[2]
            for data in (one, other)
        ]
        assert names[0] != names[1]
    assert StreamingDataset(other, "train", 32, documents="masked")._batches.name == "documents masked"
