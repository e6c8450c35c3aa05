"""Bytes of text by id: what ids stand for sums up to the text that they were made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from data_loading.tokenizers.bytes_per_token import bytes_per_id
from data_loading.tokenizers.ids import IdsTokenizer
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer
from tests.data_loading.conftest import hostile_text
from tests.searched import examples

EXACT = ("gpt2", "gpt2_as_split", "cl100k_ignore_merges", "digits", "added")


def text_bytes(tokenizer: Tokenizer, text: str) -> int:
    table = bytes_per_id(tokenizer)
    assert table is not None
    assert table.shape == (tokenizer.vocab_size,)
    return int(table[tokenizer.encode(text).astype(int)].sum())


@pytest.mark.parametrize("family", EXACT)
@settings(max_examples=examples(30))
@given(text=hostile_text)
def test_as_many_as_the_text_has(tokenizer_folder: Callable[[str], Path], family: str, text: str) -> None:
    assert text_bytes(read_tokenizer(tokenizer_folder(family), family), text) == len(text.encode())


@given(text=hostile_text)
def test_of_bytes_one_each(text: str) -> None:
    assert text_bytes(BytesTokenizer(), text) == len(text.encode())


def test_of_tiktoken(tiktoken_here: Path) -> None:
    text = "the word, été 世界 12345\n\n  x"
    tokenizer = load_tokenizer(tokenizer_spec("tiny_r50k"))
    assert text_bytes(tokenizer, text) == len(text.encode())


@pytest.mark.parametrize("family", ["llama2", "mistral"])
def test_of_sentence_pieces_a_space_ahead_more(tokenizer_folder: Callable[[str], Path], family: str) -> None:
    text = "the word  été 世界 x"
    assert text_bytes(read_tokenizer(tokenizer_folder(family), family), text) == len(text.encode()) + 1


def test_the_end_of_text_is_no_text(tokenizer_folder: Callable[[str], Path]) -> None:
    for tokenizer in (BytesTokenizer(), read_tokenizer(tokenizer_folder("gpt2"), "gpt2")):
        table = bytes_per_id(tokenizer)
        assert table is not None
        assert table[tokenizer.eot_id] == 0


@pytest.mark.parametrize("family", ["wordpiece", "unigram", "t5", "nfkc", "strip", "unknown"])
def test_nothing_is_told_where_the_text_was_changed_or_lost(
    tokenizer_folder: Callable[[str], Path], family: str
) -> None:
    assert bytes_per_id(read_tokenizer(tokenizer_folder(family), family)) is None


def test_of_ids_alone_nothing() -> None:
    assert bytes_per_id(IdsTokenizer(100)) is None
