"""Special tokens in a text become their ids where that is asked for, exactly as the reference does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers import special_tokens
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.special_tokens import choose, parsing
from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden
from tests.searched import examples

Folder = Callable[[str], Path]
SPECIAL = ("<|endoftext|>", "<s>", "</s>", "<tool>", "[SEP]", "<unk>", "a the")
FAMILIES = ("gpt2", "llama2", "wordpiece", "unigram", "special_rstrip", "special_space_inside", "added")
text_with_special = st.lists(st.one_of(st.sampled_from(SPECIAL), hostile_text), max_size=6).map("".join)


def expected(tokenizer: JsonTokenizer, text: str) -> list[int]:
    """As the tokenizers package does it when nothing is said."""
    import tokenizers

    return tokenizers.Tokenizer.from_str(tokenizer.json).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(12))
@given(text=text_with_special, block=st.integers(1, 60), engine=st.sampled_from(["auto", "huggingface"]))
def test_ids_are_those_of_the_reference(
    family: str,
    text: str,
    block: int,
    engine: str,
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer_folder: Folder,
) -> None:
    path = tmp_path_factory.mktemp("x") / "a.txt"
    tokenizer = read_tokenizer(tokenizer_folder(family), family)
    assert isinstance(tokenizer, JsonTokenizer)
    path.write_bytes((text or "x").encode())
    options = Options(block_bytes=block, engine=engine)
    pretokenize(TextFile(path), parsing(tokenizer), path.with_suffix(".npy"), options)
    ids = np.load(path.with_suffix(".npy")).tolist()
    end = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
    assert ids == expected(tokenizer, text or "x") + end


def test_a_set_says_which_and_keeps_the_tokenizer_as_it_is(
    tmp_path: Path, tokenizer_folder: Folder, golden: Golden
) -> None:
    read = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    assert isinstance(read, JsonTokenizer)
    tokenizer = dataclasses.replace(read, files=())  # so that its tokenizer.json is written, not copied
    path = tmp_path / "a.txt"
    path.write_text("one<|endoftext|>two")
    results = [
        pretokenize(TextFile(path), choose(tokenizer, how), tmp_path / f"{how}.npy").manifest
        for how in special_tokens.CHOICES
    ]
    assert [result["options"]["special_tokens"] for result in results] == ["text", "parse"]
    assert results[0]["fingerprint"] != results[1]["fingerprint"]
    assert results[0]["tokenizer"] == results[1]["tokenizer"]
    for how, count in (("text", 1), ("parse", 2)):
        assert np.load(tmp_path / f"{how}.npy").tolist().count(tokenizer.eot_id) == count
        saved = read_tokenizer(tmp_path / f"{how}.tokenizer", "gpt2")
        assert saved.content_hash == tokenizer.content_hash == parsing(tokenizer).content_hash
    assert len(np.load(tmp_path / "parse.docs.npy")) == 1, "it is an id, not the end of a document"
    with golden.refused("output-differs"):
        pretokenize(TextFile(path), parsing(tokenizer), tmp_path / "text.npy")


def test_refused(tokenizer_folder: Folder, golden: Golden) -> None:
    with golden.refused("special-tokens-none"):
        parsing(BytesTokenizer())
    with golden.refused("special-tokens-unknown"):
        choose(BytesTokenizer(), "both")
