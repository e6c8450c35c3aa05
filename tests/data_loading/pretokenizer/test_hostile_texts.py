"""Hostile texts in small blocks get the ids of encoding them whole, with every family of tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer

FAMILIES = (
    "bytes", "gpt2", "cl100k_ignore_merges", "o200k_removed", "qwen2", "deepseek", "tekken", "gemma",
    "llama2", "mistral", "t5", "wordpiece", "unknown_split",
)  # fmt: skip
TEXTS = {
    "words": "The water rose, and the mark stayed high. " * 30,
    "one letter": "a",
    "only spaces": " " * 500,
    "spaces at the end": "word\n   \n  " * 40 + "\n\t ",
    "line ends of all kinds": "a\r\nb\rc\n\nd\u2028e\u0085f\v\f" * 40,
    "no space": "abcdefghij" * 100,
    "punctuation": "!?.,;:'\"-/\\()[]{}<>@#$%^&*~`|_+= " * 30,
    "contractions": "I'll we've they're it's DON'T 'S 's' ''t " * 25,
    "numbers": "1 22 333 4444 55555 6.02e23 -1,000.5 ٣٤٥ Ⅷ½ " * 25,
    "code": "def f(x):\n\tif x==1:  # no\n        return {'a': [x]*2}\n\n" * 20,
    "Chinese": "水位上升\uff0c標記仍然很高。日本語 の テスト。 " * 30,
    "Korean and Thai": "물이 올라갔다. สวัสดี ชาวโลก ภาษาไทย " * 30,
    "Arabic and Hebrew": "ارتفع الماء وبقيت العلامة. שלום עולם " * 30,
    "combining marks": "e\u0301a\u0308 n\u0303\u0327 \u0301 A\u030a \u1e9b\u0323 " * 40,
    "emoji": "👩\u200d👩\u200d👧 😀 🏳️\u200d🌈 a😀b " * 30,
    "special tokens": "<|endoftext|> </s>a<|endoftext|>b [SEP] <s> <tool> " * 25,
    "blanks of Unicode": "a\u00a0b\u3000c\u2009d \u180e e\ufefff\u200b g " * 30,
    "word marks": "▁a ▁▁ b▁c ▁ " * 40,
    "control characters": "a\x00b\x01 \x1c c\x7f \x1b[0m " * 40,
    "rare letters": "\u017ft İI ß ﬁ Ǆ \U0001d400 \U00010400 \ufffd \U000e0001 " * 30,
    "long runs": "x" * 400 + " " * 300 + "\n" * 300 + "é" * 300 + "0" * 300 + " y",
}


@cache
def tokenizer_of(folder: Path | None) -> Tokenizer:
    return BytesTokenizer() if folder is None else read_tokenizer(folder, folder.name)


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_of_small_blocks_are_those_of_the_whole_text(
    family: str, tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(None if family == "bytes" else tokenizer_folder(family))
    end = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
    for number, text in enumerate(TEXTS.values()):
        path, output = tmp_path / f"{number}.txt", tmp_path / f"{number}.npy"
        path.write_bytes(text.encode())
        pretokenize(TextFile(path), tokenizer, output, Options(block_bytes=40, workers=0))
        assert np.load(output).tolist() == [*tokenizer.encode(text).tolist(), *end], list(TEXTS)[number]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "unknown_split"])
def test_texts_longer_than_a_run_are_tokenized(
    family: str, tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(None if family == "bytes" else tokenizer_folder(family))
    text = TEXTS["words"] * 10
    (tmp_path / "a.txt").write_text(text)
    options = Options(block_bytes=500, workers=0, run_limit_bytes=1000)
    pretokenize(TextFile(tmp_path / "a.txt"), tokenizer, tmp_path / "a.npy", options)
    expected = tokenizer.encode(text).tolist()
    assert np.load(tmp_path / "a.npy").tolist()[: len(expected)] == expected
