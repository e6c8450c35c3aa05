"""Engines: equal to the reference, chosen by comparison on the very text, replaced where they differ."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.fastokens import FastokensEngine
from data_loading.pretokenizer.engines.parity import difference_on, first_difference
from data_loading.pretokenizer.engines.reference import ReferenceEngine
from data_loading.pretokenizer.engines.registry import ENGINES, REMOVED, choose_engine, make_engine
from data_loading.pretokenizer.job import check_options
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.cutting.split_patterns import KNOWN_PATTERNS
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.special_tokens import parsing, probes
from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden
from tests.searched import examples

FAST = (
    "gpt2", "gpt2_as_split", "prefix_space", "cl100k_ignore_merges", "o200k_removed", "qwen2", "neox_spaces",
    "digits", "added", "special_rstrip", "llama2", "marks_only", "unknown",
)  # fmt: skip
"""Families that fastokens takes."""
REFERENCE = ("gpt2", "unigram")
PAIRS = [("fastokens", family) for family in FAST] + [("huggingface", family) for family in REFERENCE]
UNICODE = ("o200k_removed", "qwen2")

PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
DIGITS = {"type": "Digits", "individual_digits": True}

Folder = Callable[[str], Path]


def load(folder: Path) -> JsonTokenizer:
    tokenizer = read_tokenizer(folder, folder.name)
    assert isinstance(tokenizer, JsonTokenizer)
    return tokenizer


def silent(line: str) -> None:
    pass


@cache
def engine_of(name: str, folder: Path) -> Engine:
    return make_engine(name, load(folder))


def refusal(kind: type[Engine], tokenizer: JsonTokenizer) -> str | None:
    """Why an engine does not take a tokenizer."""
    try:
        kind.of(tokenizer).load()
    except Unsupported as why:
        return str(why)
    return None


unlike = st.sampled_from(["\u180e", "\u088f", "\u0c5c", "\ua7d2", "\U000324a5", "\U00010940", "\U00016ea0"])
"""Characters that some engine sees differently from the reference."""
hostile = st.lists(st.one_of(hostile_text, unlike), max_size=6).map("".join)


@pytest.mark.parametrize(
    ("name", "family"),
    PAIRS,
)
@settings(max_examples=examples(25))
@given(texts=st.lists(hostile, max_size=5))
def test_engines_agree_with_the_tokenizer_itself(
    name: str, family: str, texts: list[str], tokenizer_folder: Folder
) -> None:
    folder = tokenizer_folder(family)
    expected = [load(folder).encode(text) for text in texts]
    ids, lengths = engine_of(name, folder).encode_batch([text.encode() for text in texts])
    assert lengths.tolist() == [len(part) for part in expected]
    assert ids.tolist() == [i for part in expected for i in part.tolist()]
    assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)


def observant(definition: dict[str, Any]) -> JsonTokenizer:
    """Its ids show on which side of every character a pattern puts a border: `x`, `X`, `1`, `!` and a
    space merge with whatever byte follows.
    """
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [[first, second] for first in "xX1!Ġ" for second in alphabet]
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    vocab = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    model = {**definition["model"], "vocab": vocab, "merges": merges, "ignore_merges": False}
    return JsonTokenizer("observant", {**definition, "model": model, "added_tokens": []}, None, ())


@pytest.mark.parametrize(
    ("name", "family", "character"),
    [
        ("fastokens", "gpt2_as_split", "\u180e"),
        ("fastokens", "o200k_removed", "'\u017f"),
    ],
)
def test_words_around_a_character_of_another_unicode_go_to_the_reference(
    name: str, family: str, character: str, tokenizer_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = observant(load(tokenizer_folder(family)).definition)
    engine = make_engine(name, tokenizer)
    assert isinstance(engine, FastokensEngine)
    word = f"x{character} X{character}x 1{character} !{character}  {character}{character}1"
    raw, _ = engine._encode([word])
    assert raw.tolist() != tokenizer.encode(word).tolist(), "nothing to mend any more: take it off the list"
    given_to_reference: list[int] = []
    encode = ReferenceEngine.encode_batch

    def counted(self: ReferenceEngine, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        given_to_reference.extend(map(len, texts))
        return encode(self, texts)

    monkeypatch.setattr(ReferenceEngine, "encode_batch", counted)
    plain = "some text é of some length " * 1000
    for text in (word, word + plain, plain + word, f"{plain}{word}{plain}{word}{word}{plain}", character):
        given_to_reference.clear()
        ids, lengths = engine.encode_batch([b"before", text.encode(), b"after"])
        assert ids[lengths[0] : len(ids) - lengths[2]].tolist() == tokenizer.encode(text).tolist()
        assert 0 < sum(given_to_reference) <= 3 * len(word.encode()) + 20, "only what stands around it"


@pytest.mark.parametrize(
    ("name", "family", "pattern"),
    [
        *(
            pytest.param("fastokens", "gpt2_as_split", pattern, marks=pytest.mark.soak)
            for pattern in KNOWN_PATTERNS
        ),
        pytest.param("fastokens", "gpt2", None, marks=pytest.mark.slow),
        *(
            pytest.param("fastokens", family, None, marks=pytest.mark.soak)
            for family in ("o200k_removed", "qwen2")
        ),
    ],
)
def test_all_of_unicode(name: str, family: str, pattern: str | None, tokenizer_folder: Folder) -> None:
    """Every character that is or may become assigned, beside each kind of neighbour."""
    definition = copy.deepcopy(load(tokenizer_folder(family)).definition)
    if pattern is not None:
        definition["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}
    tokenizer = observant(definition)
    engine, reference = make_engine(name, tokenizer), ReferenceEngine.of(tokenizer)
    left_out = [range(0xD800, 0xE000), range(0x40000, 0xE0000), range(0xF0000, 0x110000)]
    characters = [chr(c) for c in range(0x80, 0x110000) if not any(c in part for part in left_out)]
    for start in range(0, len(characters), 4096):
        some = characters[start : start + 4096]
        texts = [f"x{c} X{c}x 1{c} !{c}  {c}{c}1 a\u0301{c}\u0327\u0300 {c}\u0307".encode() for c in some]
        for c, found, expected in zip(some, parts(engine, texts), parts(reference, texts), strict=True):
            assert found == expected, f"U+{ord(c):04X}"


def parts(engine: Engine, texts: list[bytes]) -> list[list[int]]:
    ids, lengths = engine.encode_batch(texts)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


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
    kinds = [ENGINES[name] for name in ("huggingface", "fastokens")]
    taken = [kind.name for kind in kinds if refusal(kind, tokenizer) is None]
    assert "huggingface" in taken
    for name in taken:
        ids, _ = make_engine(name, tokenizer).encode_batch([text])
        assert tokenizer.eot_id not in ids.tolist(), name


@pytest.mark.parametrize("name", ["bytes", "fastokens", "huggingface"])
def test_bytes_that_are_not_utf8_raise_with_their_position(name: str, tokenizer_folder: Folder) -> None:
    tokenizer = BytesTokenizer() if name == "bytes" else load(tokenizer_folder("gpt2"))
    with pytest.raises(UnicodeDecodeError) as caught:
        make_engine(name, tokenizer).encode_batch([b"good", b"ab\xff"])
    assert caught.value.start == 2


class TestMemory:
    def test_an_engine_is_loaded_when_it_is_needed(self, tokenizer_folder: Folder) -> None:
        engine = FastokensEngine.of(load(tokenizer_folder("gpt2")))
        assert "_tokenizer" not in vars(engine)
        engine.encode_batch([b"a"])
        assert "_tokenizer" in vars(engine)


class DislikesZebras(FastokensEngine):
    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        return super().encode_batch([text.replace(b"z", b"y") for text in texts])


class Remembering(FastokensEngine):
    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        return super().encode_batch([texts[max(0, index - 1)] for index in range(len(texts))])


class TestParity:
    long = tuple(f"{word} the word é 文字 {i}\n".encode() * 4000 for i, word in enumerate(("a", "b", "c")))

    @pytest.mark.parametrize("where", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1)), 2])
    def test_a_difference_in_any_sample_is_found(self, where: int, tokenizer_folder: Folder) -> None:
        samples = list(self.long)
        samples[where] = samples[where].replace(b"word", b"zoo", 1)
        tokenizer = load(tokenizer_folder("gpt2"))
        assert difference_on(DislikesZebras(tokenizer), tokenizer, samples) == "z"

    def test_a_difference_that_only_shows_after_other_texts_is_found(self, tokenizer_folder: Folder) -> None:
        tokenizer = load(tokenizer_folder("gpt2"))
        texts = [b"first", b"second", b"third"]
        assert first_difference(Remembering(tokenizer), ReferenceEngine.of(tokenizer), texts) == "second"

    def test_a_long_difference_is_shortened(self, tokenizer_folder: Folder) -> None:
        tokenizer = load(tokenizer_folder("gpt2"))
        text = ("a house " * 3000 + "zebra" + " of a house" * 2000).encode()
        found = first_difference(DislikesZebras(tokenizer), ReferenceEngine.of(tokenizer), [text])
        assert found == "z"


class TestChoice:
    samples = (b"The word a the\r\n", "é 文字 <|endoftext|>".encode())

    def test_the_fast_engine_is_taken_where_it_supports_the_tokenizer(self, tokenizer_folder: Folder) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder("gpt2")), self.samples, lines.append)
        assert choice.engine.name == "fastokens"
        assert choice.facts["compared_bytes"] == sum(map(len, self.samples))
        assert choice.facts["reference"].startswith("huggingface ")
        assert lines == []

    @pytest.mark.parametrize("family", ["wordpiece", "metaspace_bpe"])
    def test_else_the_reference_and_a_line_says_why(
        self, family: str, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder(family)), self.samples, lines.append)
        assert choice.engine.name == "huggingface"
        golden.text(lines[0], numbers=False)

    def test_without_a_safe_cut_the_reference_and_a_line_says_why(
        self, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder("rstrip")), self.samples, lines.append)
        assert choice.engine.name == "huggingface"
        golden.text(lines[0], numbers=False)

    def test_one_differing_id_and_the_reference_takes_over_with_a_loud_line(
        self, tokenizer_folder: Folder, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        class Wrong(FastokensEngine):
            """Differs in one character only."""

            def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
                return super().encode_batch([text.replace("文".encode(), "字".encode()) for text in texts])

        monkeypatch.setitem(ENGINES, "fastokens", Wrong)
        tokenizer = load(tokenizer_folder("gpt2"))
        lines: list[str] = []
        choice = choose_engine(tokenizer, [b"same " * 500, b"same " * 500 + "a 文 b ".encode()], lines.append)
        assert isinstance(choice.engine, ReferenceEngine)
        golden.text(lines[0], numbers=False)
        assert "文" in lines[0]
        assert len(lines[0]) < 300, "a short piece, not the whole sample"
        assert "refused" in choice.facts
        assert choose_engine(tokenizer, [b"same " * 500], silent).engine.name == "fastokens"

    def test_bytes_have_an_engine_of_their_own(self) -> None:
        assert choose_engine(BytesTokenizer(), [], silent).engine.name == "bytes"

    def test_an_engine_can_be_asked_for(self, tokenizer_folder: Folder) -> None:
        choice = choose_engine(load(tokenizer_folder("gpt2")), self.samples, silent, "huggingface")
        assert choice.engine.name == "huggingface"

    def test_an_unknown_engine_is_refused_with_the_choices(
        self, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        with golden.refused("engine-unknown"):
            choose_engine(load(tokenizer_folder("gpt2")), [], silent, "gigantic")

    @pytest.mark.parametrize("name", REMOVED)
    def test_a_removed_engine_is_refused_with_a_line(self, name: str, golden: Golden) -> None:
        with golden.refused("engine-removed"):
            choose_engine(BytesTokenizer(), [], silent, name)
        with golden.refused("engine-removed"):
            check_options(Options(engine=name), Path("a.npy"))

    @pytest.mark.parametrize("name", ["fastokens"])
    def test_an_engine_that_is_not_installed_names_the_command(
        self, name: str, tokenizer_folder: Folder, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)
        with golden.refused("engine-refused"):
            choose_engine(load(tokenizer_folder("gpt2")), self.samples, silent, name)

    def test_without_the_default_engine_the_reference_takes_over(
        self, tokenizer_folder: Folder, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setitem(sys.modules, "fastokens", None)
        lines: list[str] = []
        choice = choose_engine(load(tokenizer_folder("gpt2")), self.samples, lines.append)
        assert choice.engine.name == "huggingface"
        golden.text(lines[0], numbers=False)

    @pytest.mark.parametrize(("fuse_unk", "byte_fallback"), [(False, False), (True, False), (True, True)])
    def test_fastokens_takes_only_words_that_the_vocabulary_spells(
        self, fuse_unk: bool, byte_fallback: bool, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        """Else a word that no merge makes, such as a special token in the text, becomes its id."""
        definition = copy.deepcopy(load(tokenizer_folder("marks_only")).definition)
        model = definition["model"] | {"fuse_unk": fuse_unk, "byte_fallback": byte_fallback}
        model["merges"] = [pair for pair in model["merges"] if "<" not in "".join(pair)]
        whole = JsonTokenizer("x", {**definition, "model": model}, None, ())
        assert refusal(FastokensEngine, whole) is None
        unspelled = {"<<" if token == "<" else token: index for token, index in model["vocab"].items()}
        tokenizer = JsonTokenizer("x", {**definition, "model": {**model, "vocab": unspelled}}, None, ())
        bare = FastokensEngine(tokenizer)
        reference = ReferenceEngine.of(tokenizer)
        differing = [text for text in probes(tokenizer) if first_difference(bare, reference, [text])]
        assert b"</s>" in differing, "nothing to refuse any more: take the check away"
        golden.text(str(refusal(FastokensEngine, tokenizer)))

    @pytest.mark.parametrize("family", ["metaspace_bpe", "gpt2"])
    def test_probes_have_the_special_tokens_in_both_modes(
        self, family: str, tokenizer_folder: Folder
    ) -> None:
        tokenizer = load(tokenizer_folder(family))
        contents = [token["content"].encode() for token in tokenizer.definition["added_tokens"]]
        for asked in (tokenizer, parsing(tokenizer)):
            told, *alone = probes(asked)
            assert alone == contents
            assert all(told.count(content) >= 5 for content in contents)
        assert probes(BytesTokenizer()) == []

    @pytest.mark.parametrize("name", ["fastokens"])
    def test_added_tokens_that_overlap_and_are_looked_for_in_turn_are_refused(
        self, name: str, tokenizer_folder: Folder
    ) -> None:
        """The reference takes the one without `normalized`, the engines the longer one."""
        definition = load(tokenizer_folder("gpt2")).definition
        flags = {"lstrip": False, "rstrip": False, "single_word": False, "special": False}
        for normalized in (True, False):
            added = [
                {"id": 700, "content": "<x>!", "normalized": False, **flags},
                {"id": 701, "content": "<x>!ab", "normalized": normalized, **flags},
            ]
            tokenizer = JsonTokenizer("x", {**definition, "added_tokens": added}, None, ())
            assert (refusal(ENGINES[name], tokenizer) is not None) == normalized

    @pytest.mark.parametrize("name", ["fastokens"])
    def test_a_token_of_whole_words_beside_one_that_is_taken_out_before_is_refused(
        self, name: str, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        """wxx in "wxxzqa" is a whole word for the reference, once zqa is out of the text."""
        definition = load(tokenizer_folder("gpt2")).definition
        flags = {"lstrip": False, "rstrip": False, "special": False}
        added = [
            {"id": 700, "content": "wxx", "normalized": True, "single_word": True, **flags},
            {"id": 701, "content": "zqa", "normalized": False, "single_word": False, **flags},
        ]
        tokenizer = JsonTokenizer("x", {**definition, "added_tokens": added}, None, ())
        golden.text(str(refusal(ENGINES[name], tokenizer)))

    def test_an_engine_that_does_not_fit_is_refused_with_the_reason(
        self, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        with golden.refused("engine-refused"):
            choose_engine(load(tokenizer_folder("metaspace_bpe")), [], silent, "fastokens")
        with golden.refused("engine-refused"):
            choose_engine(load(tokenizer_folder("gpt2")), [], silent, "bytes")
        with golden.refused("engine-refused"):
            choose_engine(BytesTokenizer(), [], silent, "fastokens")
