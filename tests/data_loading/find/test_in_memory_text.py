"""A text in memory, in one call: the ids of the pretokenizer, split and read as a set on disk is."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import (
    StreamingDataset,
    load_tokenizer,
    open_tokens,
    prepare_data,
    pretokenize,
    tokenizer_spec,
)
from data_loading.find.in_memory_text import MemorySet, tokens_of_text
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden
from tests.searched import examples


class WithoutEnd(BytesTokenizer):
    eot_id = None  # type: ignore[assignment]


WORDS = [f"The water rose {i} times over {i * i} stones." for i in range(300)]


def test_in_one_call(golden: Golden) -> None:
    dataset = StreamingDataset(prepare_data(" ".join(WORDS), tokenizer="bytes"), seq_len=64)
    batch = next(iter(dataset.loader(batch_size=8)))
    assert batch["input_ids"].shape == (8, 64)
    golden.text(dataset.reader)
    text = bytes(dataset[0]["input_ids"].tolist()).decode()
    assert text in " ".join(WORDS)


def test_documents_are_ended_and_found_again() -> None:
    data = prepare_data(["one", "", "two", *WORDS], val=0.2, test=100)
    train = data.train
    assert isinstance(train, MemorySet)
    assert bytes(train.tokens[:3].tolist()) == b"one"
    assert train.tokens[[3, 7]].tolist() == [256, 256]
    assert train.documents[:3].tolist() == [0, 4, 8], "what has no text is left out"
    assert data.splits == ("train", "val", "test")
    border = data.val_ranges[0].start
    assert border in train.documents.tolist()
    masked = StreamingDataset(data, seq_len=32, documents="masked", order="sequential")
    assert masked[0]["position_ids"][:8].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("family", ["bytes", "gpt2", "llama2", "unigram", "wordpiece"])
@settings(max_examples=examples(8))
@given(documents=st.lists(hostile_text, min_size=1, max_size=6))
def test_the_ids_are_those_of_the_pretokenizer(
    family: str,
    documents: list[str],
    tokenizer_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("set")
    (folder / "x.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ["first", *documents])
    )
    tokenizer = load_tokenizer(
        tokenizer_spec("bytes" if family == "bytes" else str(tokenizer_folder(family)))
    )
    pretokenize(open_inputs([str(folder / "x.jsonl")], InputOptions()), tokenizer, folder / "x.npy")
    on_disk, in_memory = open_tokens(folder / "x.npy"), tokens_of_text(["first", *documents], tokenizer)
    assert in_memory.tokens.dtype == on_disk.tokens.dtype
    assert in_memory.tokens.tolist() == on_disk.tokens[:].tolist()
    assert on_disk.documents is not None
    assert in_memory.documents.tolist() == on_disk.documents[:].tolist()
    assert (in_memory.vocab_size, in_memory.eot_id) == (on_disk.vocab_size, on_disk.eot_id)


def test_the_same_text_is_the_same_data_and_another_is_another() -> None:
    one, same, other = (prepare_data(text) for text in (WORDS, iter(WORDS), WORDS[::-1]))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    together = prepare_data("".join(WORDS))
    assert together.fingerprint != one.fingerprint


def test_pickled_copy_reads_the_same() -> None:
    dataset = StreamingDataset(prepare_data(WORDS), seq_len=16)
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[5]["labels"], dataset[5]["labels"])
    assert again.reader == dataset.reader


def test_reader_memory_reads_the_same(golden: Golden) -> None:
    data = prepare_data(WORDS)
    copied = StreamingDataset(data, seq_len=16, reader="memory")
    golden.text(copied.reader)
    assert torch.equal(copied[3]["labels"], StreamingDataset(data, seq_len=16)[3]["labels"])
    with golden.refused("no-checksums"):
        StreamingDataset(data, seq_len=16, verify="blocks")


class TestWhatIsRefused:
    @pytest.mark.parametrize("text", ["", [], [""], iter(())])
    def test_no_text(self, text: object, golden: Golden) -> None:
        with golden.refused("no-text"):
            prepare_data(text)  # type: ignore[call-overload]

    def test_too_short_for_a_split_or_a_window(self, golden: Golden) -> None:
        with golden.refused("val-share-impossible"):
            prepare_data("x", tokenizer=WithoutEnd())
        with golden.refused("too-few-tokens"):
            StreamingDataset(prepare_data("twenty characters in"), seq_len=64)

    def test_a_path(self, tmp_path: Path, golden: Golden) -> None:
        path = tmp_path / "my.txt"
        path.write_text("words")
        for mistake in (str(path), [str(path), "more"], str(tmp_path)):
            with golden.refused("path-given-as-text"):
                prepare_data(mistake)
        with golden.refused("text-type-invalid"):
            prepare_data(Path("my.txt"))  # type: ignore[call-overload]
        with golden.refused("path-given-as-text"):
            prepare_data("synthetic:markov:64")
        assert prepare_data(f"{path}\n").tokens("train") > 0, "as its message says"
        assert prepare_data("x" * 5000 + "/\0").tokens("train") > 0

    @pytest.mark.parametrize("no_text", [b"bytes", 7, ["text", 7], [b"bytes"], np.arange(3)])
    def test_what_is_no_text(self, no_text: object, golden: Golden) -> None:
        with golden.refused("text-type-invalid"):
            prepare_data(no_text)  # type: ignore[call-overload]

    def test_half_a_character(self, golden: Golden) -> None:
        with golden.refused("lone-surrogate"):
            prepare_data(["fine", "ab\ud800"])

    def test_an_unknown_tokenizer(self, golden: Golden) -> None:
        with golden.refused("tokenizer-folder-missing"):
            prepare_data("some text", tokenizer="gtp2")
