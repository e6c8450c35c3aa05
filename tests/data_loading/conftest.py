"""Tokenizers of every family, trained here in milliseconds, and texts that are hard to cut."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from data_loading.tokenizers.cutting.split_patterns import GPT2_PATTERN, KNOWN_PATTERNS

DEEPSEEK_PATTERNS = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

FRAGMENTS = [
    "a", "The", " the", "word", "'s", "'S", "'ll", "'", " ", "  ", "      ", "\n", "\r\n", "\r", "\t", "\n\n",
    "\v", "\x00", "1", "2024", "!", "!!", "...", "$", "<|endoftext|>", "</s>", "[SEP]", "<tool>", "▁", "é",
    "e\u0301", "\u0301", "中", "文字", "日本", "한국", "Ж", "\u017f", "İ", "😀", "👩\u200d👩", "\u200d",
    "\u00a0", "\u2028", "\u3000", "\ufeff", "\ufffd", "ﬁ", "ｱ", "``", "''", "#", "_", "/", "~", "x!",
]  # fmt: skip

hostile_text = st.lists(
    st.one_of(
        st.sampled_from(FRAGMENTS),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.text("ab \n!1", max_size=6),
    ),
    max_size=40,
).map("".join)
"""Whatever a file may hold: all of Unicode, line ends of all kinds, special tokens as text, marks."""


@lru_cache(maxsize=1)
def training_text() -> list[str]:
    code = Path(argparse.__file__).read_text(encoding="utf-8")[:40_000]
    return [
        *code.splitlines(keepends=True),
        *FRAGMENTS,
        "! !! " * 300,
        "Жил был 文字 日本 한국어 été naïve 😀 </s> the word a the\n" * 20,
    ]


@lru_cache(maxsize=1)
def _makers() -> dict[str, Callable[[], dict[str, Any]]]:
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
        tokenizer.train_from_iterator(training_text(), trainer)
        return tokenizer

    def bpe(pre: Any, normalizer: Any = None, added: list[Any] | None = None, **model: Any) -> dict[str, Any]:
        tokenizer = Tokenizer(models.BPE(**model))
        tokenizer.pre_tokenizer = pre
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        special = ["<|endoftext|>"]
        trainer = trainers.BpeTrainer(
            vocab_size=700, initial_alphabet=alphabet, special_tokens=special, show_progress=False
        )
        trained(tokenizer, trainer)
        tokenizer.add_tokens(added or [])
        return json.loads(tokenizer.to_str())

    def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> Any:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior, invert),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def byte_level(prefix: bool = False) -> Any:
        return pre_tokenizers.ByteLevel(add_prefix_space=prefix)

    def metaspace_bpe() -> dict[str, Any]:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)]]
        trainer = trainers.BpeTrainer(
            vocab_size=1000,
            initial_alphabet=[chr(point) for point in range(0x21, 0x7F)],
            special_tokens=special,
            show_progress=False,
        )
        definition = json.loads(trained(tokenizer, trainer).to_str())
        definition["added_tokens"] = definition["added_tokens"][:3]
        return definition

    def llama2() -> dict[str, Any]:
        definition = metaspace_bpe()
        definition["pre_tokenizer"] = None
        prepend = {"type": "Prepend", "prepend": "▁"}
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        definition["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
        return definition

    def marks_only() -> dict[str, Any]:
        definition = llama2()
        definition["normalizer"] = definition["normalizer"]["normalizers"][1]
        return definition

    def unknown() -> dict[str, Any]:
        definition = marks_only()
        model = definition["model"]
        model |= {"byte_fallback": False, "fuse_unk": False}
        tokens = [
            token for token in model["vocab"] if token.replace("▁", "").isprintable() and token.isascii()
        ]
        model["vocab"] = {token: index for index, token in enumerate([*tokens, "▁"])}
        model["merges"] = [pair for pair in model["merges"] if {*pair, "".join(pair)} <= {*tokens, "▁"}]
        return definition

    def spanning() -> dict[str, Any]:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
        return json.loads(trained(tokenizer, trainer).to_str())

    def gemma() -> dict[str, Any]:
        definition = marks_only()
        definition["pre_tokenizer"] = {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
        return definition

    def deepseek() -> dict[str, Any]:
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in DEEPSEEK_PATTERNS]
        by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return bpe(pre_tokenizers.Sequence([*steps, by_bytes]))

    def mistral() -> dict[str, Any]:
        definition = metaspace_bpe()
        definition["pre_tokenizer"] |= {"split": False, "prepend_scheme": "first"}
        return definition

    def unigram() -> dict[str, Any]:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        )
        special = ["<unk>", "</s>"]
        trainer = trainers.UnigramTrainer(
            vocab_size=500, special_tokens=special, unk_token="<unk>", show_progress=False
        )
        return json.loads(trained(tokenizer, trainer).to_str())

    def wordpiece() -> dict[str, Any]:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            vocab_size=900, special_tokens=["[UNK]", "[SEP]"], show_progress=False
        )
        return json.loads(trained(tokenizer, trainer).to_str())

    def of_t5() -> dict[str, Any]:
        definition = unigram()
        nmt = {"type": "Nmt"}  # makes a space of a line feed, as the tables of SentencePiece do
        definition["normalizer"]["normalizers"].insert(0, nmt)
        definition["pre_tokenizer"] = definition["pre_tokenizer"]["pretokenizers"][1]
        return definition

    def whole_words() -> dict[str, Any]:
        tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(
            vocab_size=900, special_tokens=["[UNK]", "[SEP]"], show_progress=False
        )
        return json.loads(trained(tokenizer, trainer).to_str())

    def line_feed_alone() -> dict[str, Any]:
        definition = marks_only()
        vocab, merges = definition["model"]["vocab"], definition["model"]["merges"]
        tokens = [token for token in vocab if not token.strip("\n") or "\n" not in token]
        definition["model"]["vocab"] = {token: index for index, token in enumerate(tokens)}
        kept = [pair for pair in merges if {*pair, "".join(pair)} <= set(tokens)]
        definition["model"]["merges"] = kept
        return definition

    spaces = [AddedToken(" " * width, normalized=True) for width in range(2, 9)]
    rstrip = AddedToken("<tool>", rstrip=True)
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "gpt2": lambda: bpe(byte_level()),
        "gpt2_as_split": lambda: bpe(split(GPT2_PATTERN)),
        "prefix_space": lambda: bpe(byte_level(prefix=True)),
        "cl100k_ignore_merges": lambda: bpe(split(KNOWN_PATTERNS[2]), ignore_merges=True),
        "o200k_removed": lambda: bpe(split(KNOWN_PATTERNS[1], "removed", True)),
        "qwen2": lambda: bpe(split(KNOWN_PATTERNS[3]), normalizers.NFC()),
        "neox_spaces": lambda: bpe(byte_level(), normalizers.NFC(), spaces),
        "digits": lambda: bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()])),
        "falcon": lambda: bpe(
            pre_tokenizers.Sequence(
                [pre_tokenizers.Punctuation(), byte_level(), pre_tokenizers.Digits(False)]
            )
        ),
        "added": lambda: bpe(byte_level(), None, [AddedToken("<tool>", lstrip=True), AddedToken(" x!")]),
        "special_rstrip": lambda: bpe(byte_level(), None, [AddedToken("<tool>", rstrip=True, special=True)]),
        "metaspace_bpe": metaspace_bpe,
        "llama2": llama2,
        "marks_only": marks_only,
        "unknown": unknown,
        "nfkc": lambda: bpe(byte_level(), normalizers.NFKC()),
        "nfkc_cl100k": lambda: bpe(
            split(KNOWN_PATTERNS[2]), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        ),
        "nfd_o200k": lambda: bpe(
            split(KNOWN_PATTERNS[1]), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
        ),
        "t5": of_t5,
        "whole_words": whole_words,
        "line_feed_alone": line_feed_alone,
        "mistral": mistral,
        "gemma": gemma,
        "deepseek": deepseek,
        "tekken": lambda: bpe(split(TEKKEN_PATTERN)),
        "unigram": unigram,
        "wordpiece": wordpiece,
        # From here on: no rule.
        "rstrip": lambda: bpe(byte_level(), None, [rstrip]),
        "space_inside": lambda: bpe(byte_level(), None, [AddedToken("the word")]),
        "special_space_inside": lambda: bpe(
            byte_level(), None, [AddedToken("a the", special=True), AddedToken(" the", normalized=False)]
        ),
        "single_word": lambda: bpe(byte_level(), None, [AddedToken(" the", single_word=True)]),
        "no_pre_tokenizer": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
        "spanning": spanning,
        "strip": lambda: bpe(byte_level(), normalizers.Strip()),
        "replace": lambda: bpe(byte_level(), normalizers.Replace(" ", "▁")),
        "unknown_split": lambda: bpe(split(r"\S+ ?|\s+")),
    }
    return makers


WITH_RULE = (
    "gpt2", "gpt2_as_split", "prefix_space", "cl100k_ignore_merges", "o200k_removed", "qwen2", "neox_spaces",
    "digits", "falcon", "added", "special_rstrip", "metaspace_bpe", "llama2", "marks_only", "mistral",
    "gemma", "deepseek", "tekken", "unigram", "wordpiece", "unknown", "nfkc", "nfkc_cl100k", "nfd_o200k",
    "t5", "whole_words", "line_feed_alone",
)  # fmt: skip
WITHOUT_RULE = (
    "rstrip", "space_inside", "special_space_inside", "single_word", "no_pre_tokenizer", "spanning", "strip",
    "replace", "unknown_split",
)  # fmt: skip


def without_memory_lines(output: str) -> str:
    """Output without the [mem] lines, which differ by machine."""
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[mem]"))


@cache
def tokenizer_folder_text(family: str) -> str:
    return json.dumps(_makers()[family]())


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder with the tokenizer.json of a family."""

    def folder(family: str) -> Path:
        path = tmp_path_factory.getbasetemp() / "tokenizers" / family
        if not path.exists():
            path.mkdir(parents=True)
            (path / "tokenizer.json").write_text(tokenizer_folder_text(family), encoding="utf-8")
        return path

    return folder


def zstd_bytes(data: bytes) -> bytes:
    """One frame of zstd with a checksum, as the `zstd` command writes it."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


@pytest.fixture(scope="session")
def tiktoken_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with encodings of our own, for the PYTHONPATH of a process; skips without tiktoken."""
    pytest.importorskip("tiktoken")
    from tests.data_loading.tiktoken_plugin import write_plugin

    return write_plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def tiktoken_here(tiktoken_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """tiktoken in this process knows these encodings, and finds nothing in its cache."""
    from tests.data_loading.tiktoken_plugin import forget

    monkeypatch.syspath_prepend(str(tiktoken_folder))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    yield tiktoken_folder
    forget()
