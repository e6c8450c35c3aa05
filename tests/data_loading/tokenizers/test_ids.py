"""tokenizer=ids: numbers for text, the vocabulary of the set, also of files that nothing is known of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conf.schema import Dataset, Tokenizer
from data_loading import load_tokenizer, prepare_data, pretokenize, tokenizer_spec
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.ids import IdsTokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden

IDS = Tokenizer(name="ids")


def test_numbers_are_the_text(golden: Golden) -> None:
    tokenizer = load_tokenizer(IDS, 64)
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (64, None)
    assert tokenizer.decode(np.array([17, 3, 5], np.uint16)) == "17 3 5"
    assert tokenizer.encode("17 3\n5").tolist() == [17, 3, 5]
    for wrong in ("64", "-1", "x", "1.5", "²"):
        with golden.refused("id-invalid"):
            tokenizer.encode(wrong)
    assert IdsTokenizer(64).content_hash != IdsTokenizer(65).content_hash


def test_it_has_no_vocabulary_of_its_own_and_makes_no_set(tmp_path: Path, golden: Golden) -> None:
    with golden.refused("ids-without-tokens"):
        load_tokenizer(IDS)
    with golden.refused("tokenizer-folder-missing"):
        tokenizer_spec("ids")
    with golden.refused("ids-without-files"):
        IdsTokenizer(64).save(tmp_path)


@pytest.mark.parametrize(
    ("tokenizer", "vocab_size", "name"), [("ids", 64, "ids"), ("bytes", 257, "bytes")], ids=str
)
def test_a_synthetic_set_under_each_tokenizer(tokenizer: str, vocab_size: int, name: str) -> None:
    data = prepare_data(Dataset(path="synthetic:zipf:64:1M"), Tokenizer(name=tokenizer), tokenize=False)
    assert (data.vocab_size, data.tokenizer_name, data.train.vocab_size) == (vocab_size, name, 64)


def test_more_ids_than_the_tokenizer_has(golden: Golden) -> None:
    with golden.refused("synthetic-vocabulary-too-large"):
        prepare_data(Dataset(path="synthetic:zipf:1000"), Tokenizer(name="bytes"), tokenize=False)


def test_a_lone_file_of_an_unknown_tokenizer(tmp_path: Path) -> None:
    np.save(tmp_path / "lone.npy", (np.arange(5000) % 777).astype("<u2"))
    np.save(tmp_path / "held.npy", (np.arange(1000) % 888).astype("<u2"))
    path = str(tmp_path / "lone.npy")
    assert prepare_data(Dataset(path=path), IDS, tokenize=False).vocab_size == 777
    both = Dataset(path=path, val_path=str(tmp_path / "held.npy"))
    assert prepare_data(both, IDS, tokenize=False).vocab_size == 888


def test_a_set_whichever_tokenizer_made_it(tmp_path: Path, golden: Golden) -> None:
    text = tmp_path / "x.txt"
    text.write_text("some words and more of them " * 40)
    with golden.refused("ids-need-tokens"):
        prepare_data(Dataset(path=str(text)), IDS, tokenize=True)
    pretokenize(TextFile(text), BytesTokenizer(), tmp_path / "x.npy")
    data = prepare_data(Dataset(path=str(text)), IDS, tokenize=False)
    assert (data.vocab_size, data.tokenizer_name) == (257, "ids")
    text.write_text("other words")
    with golden.refused("set-not-of-text"):
        prepare_data(Dataset(path=str(text)), IDS, tokenize=False)
