"""Engines: equal to the reference, chosen by comparison on the very text, replaced where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conf import UserError
from data_loading.pretokenizer import engines
from data_loading.pretokenizer.engines import (
    Engine,
    FastokensEngine,
    ReferenceEngine,
    choose_engine,
    make_engine,
)
from data_loading.tokenizer import BytesTokenizer, JsonTokenizer
from data_loading.tokenizer_files import read_tokenizer
from tests.data_loading.conftest import hostile_text

FAST = (
    "gpt2", "gpt2_as_split", "prefix_space", "cl100k_ignore_merges", "o200k_removed", "qwen2", "neox_spaces",
    "digits", "added", "special_rstrip", "llama2",
)  # fmt: skip
"""Families that fastokens takes."""

Folder = Callable[[str], Path]


def load(folder: Path) -> JsonTokenizer:
    tokenizer = read_tokenizer(folder, folder.name)
    assert isinstance(tokenizer, JsonTokenizer)
    return tokenizer


def silent(line: str) -> None:
    pass


@pytest.mark.parametrize("family", FAST)
@settings(max_examples=25)
@given(texts=st.lists(hostile_text, max_size=5))
def test_engines_agree_with_the_tokenizer_itself(
    family: str, texts: list[str], tokenizer_folder: Folder
) -> None:
    tokenizer = load(tokenizer_folder(family))
    expected = [tokenizer.encode(text) for text in texts]
    for engine in _both(tokenizer):
        ids, lengths = engine.encode_batch([text.encode() for text in texts])
        assert lengths.tolist() == [len(part) for part in expected]
        assert ids.tolist() == [i for part in expected for i in part.tolist()]
        assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)


def _both(tokenizer: JsonTokenizer, known: dict[str, tuple[Engine, Engine]] = {}) -> tuple[Engine, Engine]:  # noqa: B006
    if tokenizer.name not in known:
        known[tokenizer.name] = (make_engine("fastokens", tokenizer), make_engine("huggingface", tokenizer))
    return known[tokenizer.name]


@pytest.mark.parametrize("family", ["cl100k_ignore_merges", "qwen2", "o200k_removed", "gpt2_as_split"])
def test_the_fast_engine_keeps_no_state_from_one_text_to_the_next(
    family: str, tokenizer_folder: Folder
) -> None:
    """fastokens 0.3.2 gave other ids to a text whose first 4 KB were those of the text before."""
    tokenizer = load(tokenizer_folder(family))
    fast = make_engine("fastokens", tokenizer)
    start = ("the word a " * 600)[:5000]
    for width in (1, 2, 50, 700):
        for other in ("x", "\n", "\t", "  ", "é"):
            before, text = f"{start}{' ' * (width // 2)}{other} y", f"{start}{' ' * width}"
            fast.encode_batch([before.encode()])
            assert fast.encode_batch([text.encode()])[0].tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("family", ["gpt2", "cl100k_ignore_merges", "metaspace_bpe", "wordpiece"])
def test_no_engine_turns_the_text_of_a_special_token_into_its_id(
    family: str, tokenizer_folder: Folder
) -> None:
    tokenizer = load(tokenizer_folder(family))
    special = {token["id"] for token in tokenizer.definition["added_tokens"]}
    assert tokenizer.eot_id in special
    text = b"a <|endoftext|> b </s>[SEP]<|endoftext|>"
    names = ["huggingface", "fastokens"] if FastokensEngine.supports(tokenizer) else ["huggingface"]
    for name in names:
        ids, _ = make_engine(name, tokenizer).encode_batch([text])
        assert tokenizer.eot_id not in ids.tolist(), name


@pytest.mark.parametrize("name", ["bytes", "fastokens", "huggingface"])
def test_bytes_that_are_not_utf8_raise_with_their_position(name: str, tokenizer_folder: Folder) -> None:
    tokenizer = BytesTokenizer() if name == "bytes" else load(tokenizer_folder("gpt2"))
    with pytest.raises(UnicodeDecodeError) as caught:
        make_engine(name, tokenizer).encode_batch([b"good", b"ab\xff"])
    assert caught.value.start == 2


class TestChoice:
    samples = (b"The word a the\r\n", "é 文字 <|endoftext|>".encode())

    def test_the_fast_engine_is_taken_where_it_supports_the_tokenizer(self, tokenizer_folder: Folder) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder("gpt2")), self.samples, lines.append)
        assert choice.engine.name == "fastokens"
        assert choice.facts["compared_bytes"] == sum(map(len, self.samples))
        assert choice.facts["reference"].startswith("huggingface ")
        assert lines == []

    @pytest.mark.parametrize("family", ["unigram", "wordpiece", "metaspace_bpe"])
    def test_else_the_reference_and_a_line_says_why(self, family: str, tokenizer_folder: Folder) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder(family)), self.samples, lines.append)
        assert choice.engine.name == "huggingface"
        assert "fastokens does not take" in lines[0]

    def test_without_a_safe_cut_the_reference_and_a_line_says_why(self, tokenizer_folder: Folder) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder("rstrip")), self.samples, lines.append)
        assert choice.engine.name == "huggingface"
        assert "no known safe cut" in lines[0]
        assert "rstrip" in lines[0]

    def test_one_differing_id_and_the_reference_takes_over_with_a_loud_line(
        self, tokenizer_folder: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Wrong(FastokensEngine):
            """Differs in one character only."""

            def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
                return super().encode_batch([text.replace("文".encode(), "字".encode()) for text in texts])

        monkeypatch.setitem(engines.ENGINES, "fastokens", Wrong)
        tokenizer = load(tokenizer_folder("gpt2"))
        lines: list[str] = []
        choice = choose_engine(tokenizer, [b"same " * 500, b"same " * 500 + "a 文 b ".encode()], lines.append)
        assert isinstance(choice.engine, ReferenceEngine)
        assert lines[0].startswith("WARNING: fastokens")
        assert "文" in lines[0]
        assert len(lines[0]) < 300, "a short piece, not the whole sample"
        assert "refused" in choice.facts
        assert choose_engine(tokenizer, [b"same " * 500], silent).engine.name == "fastokens"

    def test_bytes_have_an_engine_of_their_own(self) -> None:
        assert choose_engine(BytesTokenizer(), [], silent).engine.name == "bytes"

    def test_an_engine_can_be_asked_for(self, tokenizer_folder: Folder) -> None:
        choice = choose_engine(load(tokenizer_folder("gpt2")), self.samples, silent, "huggingface")
        assert choice.engine.name == "huggingface"

    def test_an_unknown_engine_is_refused_with_the_choices(self, tokenizer_folder: Folder) -> None:
        with pytest.raises(UserError, match="choices are auto, bytes, fastokens, huggingface"):
            choose_engine(load(tokenizer_folder("gpt2")), [], silent, "gigantic")

    def test_an_engine_that_does_not_fit_is_refused_with_the_reason(self, tokenizer_folder: Folder) -> None:
        with pytest.raises(UserError, match=r"cannot encode with tokenizer metaspace_bpe: .*Metaspace"):
            choose_engine(load(tokenizer_folder("metaspace_bpe")), [], silent, "fastokens")
        with pytest.raises(UserError, match="encodes bytes only"):
            choose_engine(load(tokenizer_folder("gpt2")), [], silent, "bytes")
        with pytest.raises(UserError, match=r"needs a tokenizer\.json"):
            choose_engine(BytesTokenizer(), [], silent, "fastokens")
