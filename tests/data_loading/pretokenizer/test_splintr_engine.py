"""The engine of splintr: the reference's ids for every Unigram model that it takes, all else refused."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer.engine import Unsupported
from data_loading.pretokenizer.engines import choose_engine, chosen_before, make_engine
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.reference_engine import ReferenceEngine
from data_loading.pretokenizer.special_tokens import parsing
from data_loading.pretokenizer.splintr_engine import SplintrEngine
from data_loading.pretokenizer.texts import TextFile
from data_loading.tokenizer import JsonTokenizer
from data_loading.tokenizer_files import read_tokenizer
from tests.data_loading.conftest import hostile_text, tokenizer_folder_text
from tests.data_loading.pretokenizer.test_cuts import charsmap
from tests.golden_text import Golden
from tests.searched import examples

pytest.importorskip("splintr")

Part = dict[str, Any]
MARK = "▁"


def metaspace(scheme: str = "always", **changed: Any) -> Part:
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True, **changed}


def behind_whitespace(part: Part) -> Part:
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, part]}


def replace(pattern: Part, content: str) -> Part:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizer(*steps: str | Part) -> Part:
    parts = [{"type": step} if isinstance(step, str) else step for step in steps]
    return {"type": "Sequence", "normalizers": parts}


BLANKS = replace({"Regex": " {2,}"}, " ")
MARKED_BLANKS = replace({"Regex": " {2,}"}, MARK)
QUOTES = replace({"String": "``"}, '"'), replace({"String": "''"}, '"')
TABLE = {"type": "Precompiled", "precompiled_charsmap": charsmap("a", "b")}
BYTES = [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
VARIANTS: dict[str, Part] = {
    "plain": {"normalizer": None, "pre_tokenizer": metaspace()},
    "first": {"normalizer": None, "pre_tokenizer": metaspace("first")},
    "never": {"normalizer": None, "pre_tokenizer": metaspace("never")},
    "old file": {"pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}},
    "t5": {"normalizer": TABLE, "pre_tokenizer": behind_whitespace(metaspace())},
    "xlm-r": {"normalizer": normalizer(TABLE, MARKED_BLANKS), "pre_tokenizer": metaspace()},
    "albert": {"normalizer": normalizer(*QUOTES, "NFKD", "StripAccents", "Lowercase", TABLE, BLANKS)},
    "trained": {"normalizer": normalizer("Nmt", "NFKC", BLANKS), "pre_tokenizer": metaspace()},
    "nmt": {"normalizer": {"type": "Nmt"}, "pre_tokenizer": metaspace()},
    "nfc": {"normalizer": {"type": "NFC"}},
    "nfd": {"normalizer": {"type": "NFD"}, "pre_tokenizer": metaspace("never")},
}
"""Parts that a trained tokenizer is given in place of its own."""


@cache
def made(variant: str, bytes_too: bool = False) -> JsonTokenizer:
    definition = {**json.loads(tokenizer_folder_text("unigram")), **copy.deepcopy(VARIANTS[variant])}
    if bytes_too:
        definition["model"]["byte_fallback"] = True
        definition["model"]["vocab"] += BYTES
    return JsonTokenizer(variant, definition, None, ())


@cache
def spelling(variant: str) -> JsonTokenizer:
    """Its ids are the bytes of the text as the normalizer leaves it."""
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [MARK, -1.0], *BYTES]}
    definition = {**made(variant).definition, "model": {**model, "byte_fallback": True}, "added_tokens": []}
    return JsonTokenizer("spelling", definition, None, ())


@cache
def engine_of(tokenizer: Callable[[str], JsonTokenizer], variant: str) -> SplintrEngine:
    found = make_engine("splintr", tokenizer(variant))
    assert isinstance(found, SplintrEngine)
    return found


def ids_of(engine: SplintrEngine, text: str) -> list[int]:
    return engine.encode_batch([text.encode()])[0].tolist()


unlike = st.sampled_from(
    [*"\u0903\u0488\u32ff\u089b\u094d\u0b94\u205f\u3000\ufeff\ufffd▁", "<unk>", "\U0001e030"]
)
hostile = st.lists(st.one_of(hostile_text, unlike), max_size=6).map("".join)


@pytest.mark.parametrize("bytes_too", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=examples(10))
@given(texts=st.lists(hostile, max_size=5))
def test_ids_are_those_of_the_tokenizer_itself(variant: str, bytes_too: bool, texts: list[str]) -> None:
    tokenizer = made(variant, bytes_too)
    expected = [tokenizer.encode(text) for text in texts]
    ids, lengths = engine_of(_with_bytes if bytes_too else made, variant).encode_batch(
        [text.encode() for text in texts]
    )
    assert lengths.tolist() == [len(part) for part in expected]
    assert ids.tolist() == [i for part in expected for i in part.tolist()]
    assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)


def _with_bytes(variant: str) -> JsonTokenizer:
    return made(variant, bytes_too=True)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=examples(15))
@given(text=hostile)
def test_every_character_becomes_what_the_reference_makes_of_it(variant: str, text: str) -> None:
    assert ids_of(engine_of(spelling, variant), text) == spelling(variant).encode(text).tolist()


@pytest.mark.parametrize(
    "variant",
    [
        *(pytest.param(variant, marks=pytest.mark.slow) for variant in ("albert", "trained", "nfd")),
        *(
            pytest.param(variant, marks=pytest.mark.soak)
            for variant in ("plain", "xlm-r", "t5", "nmt", "nfc")
        ),
    ],
)
def test_all_of_unicode(variant: str) -> None:
    """Every character that is or may become assigned, beside marks and letters."""
    engine, reference = engine_of(spelling, variant), ReferenceEngine.of(spelling(variant))
    left_out = [range(0xD800, 0xE000), range(0x40000, 0xE0000), range(0xF0000, 0x110000)]
    characters = [chr(c) for c in range(0x80, 0x110000) if not any(c in part for part in left_out)]
    for start in range(0, len(characters), 4096):
        some = characters[start : start + 4096]
        texts = [f"x{c} {c}{c} a\u0301{c}\u0327 \u0345{c} {c}\u0334 A{c}x".encode() for c in some]
        for c, found, expected in zip(some, parts(engine, texts), parts(reference, texts), strict=True):
            assert found == expected, f"U+{ord(c):04X}"


def parts(engine: SplintrEngine | ReferenceEngine, texts: list[bytes]) -> list[list[int]]:
    ids, lengths = engine.encode_batch(texts)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize(
    ("variant", "character"),
    [
        ("albert", "\u0903"),
        ("albert", "\U00010783"),
        ("trained", "\u32ff"),
        ("nmt", "\u3000"),
        ("nmt", "\u205f"),
        ("nmt", "\ufffd"),
        ("trained", "\ufeff"),
        ("nfc", "\u1abf"),
        ("nfd", "\u089b"),
    ],
)
def test_words_around_a_character_that_it_sees_differently_go_to_the_reference(
    variant: str, character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, engine = spelling(variant), engine_of(spelling, variant)
    word = f"x{character} \u0345{character} {character}\u0334"
    raw, _ = engine._encode([word.encode()], [word])
    assert raw.tolist() != tokenizer.encode(word).tolist(), "nothing to mend any more: take it off the list"
    given_to_reference: list[int] = []
    encode = ReferenceEngine.encode_batch

    def counted(self: ReferenceEngine, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        given_to_reference.extend(map(len, texts))
        return encode(self, texts)

    monkeypatch.setattr(ReferenceEngine, "encode_batch", counted)
    plain = "some text é of some length " * 1000
    for text in (word, word + plain, plain + word, f"{plain}{word}{plain}{word}{word}{plain}"):
        given_to_reference.clear()
        assert ids_of(engine, text) == tokenizer.encode(text).tolist()
        assert 0 < sum(given_to_reference) <= 3 * len(word.encode()) + 20, "only what stands around it"


def test_a_word_mark_inside_of_a_word() -> None:
    """Behind a WhitespaceSplit splintr looks for tokens across it."""
    definition = copy.deepcopy(made("t5").definition)
    definition["model"]["vocab"].append([f"x{MARK}", 0.0])
    tokenizer = JsonTokenizer("mark", definition, None, ())
    engine = make_engine("splintr", tokenizer)
    assert isinstance(engine, SplintrEngine)
    text = f"the wax{MARK}word x{MARK}"
    assert engine._encode([text.encode()], [text])[0].tolist() != tokenizer.encode(text).tolist()
    assert ids_of(engine, text) == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("bytes_too", [False, True])
@pytest.mark.parametrize(
    "text", ["a <unk>\U0001f9ff b", "a \U0001f9ff<unk> b", "<unk><unk>", "x<unk>\U0001f9ff"]
)
def test_the_unknown_token_written_out_beside_something_unknown(text: str, bytes_too: bool) -> None:
    tokenizer = made("plain", bytes_too)
    engine = engine_of(_with_bytes if bytes_too else made, "plain")
    assert engine._tokenizer.tokenizer.encode_ordinary(text) != tokenizer.encode(text).tolist()
    assert ids_of(engine, text) == tokenizer.encode(text).tolist()
    alone = "a <unk> b"
    ids = np.array(engine._tokenizer.tokenizer.encode_ordinary(alone))
    assert not engine._has_fused(ids), "that it says right"
    assert ids.tolist() == tokenizer.encode(alone).tolist()


pieces = st.text("abc▁é文 <\n", min_size=1, max_size=5)
scores = st.one_of(st.integers(-8, 1).map(lambda n: n / 2), st.floats(-12, 3))


@settings(max_examples=examples(100))
@given(
    vocab=st.dictionaries(pieces, scores, max_size=20),
    unknown=st.sampled_from([0.0, -3.5]),
    text=st.text("abc▁é文 <\nxЖ", max_size=60),
    split=st.sampled_from(
        [metaspace(), metaspace("first"), metaspace("never"), behind_whitespace(metaspace())]
    ),
    bytes_too=st.booleans(),
)
@example({"ab": -1.0, "a": -0.5, "b": -0.5}, 0.0, "ab", metaspace(), False)
@example({"ab": -1.0 - 1e-15, "a": -0.5, "b": -0.5}, 0.0, "ab abab", metaspace(), False)
def test_any_vocabulary_and_scores_that_tie(
    vocab: dict[str, float], unknown: float, text: str, split: Part, bytes_too: bool
) -> None:
    entries = [*{MARK: -2.0, **vocab}.items(), *(BYTES if bytes_too else []), ("<unk>", unknown)]
    model = {"type": "Unigram", "unk_id": len(entries) - 1, "vocab": entries, "byte_fallback": bytes_too}
    tokenizer = JsonTokenizer("any", {"version": "1.0", "pre_tokenizer": split, "model": model}, None, ())
    found = make_engine("splintr", tokenizer).encode_batch([text.encode()])[0].tolist()
    assert found == tokenizer.encode(text).tolist()


def changed(**model: Any) -> Part:
    return {"model": {**made("plain").definition["model"], **model}}


VOCAB = made("plain").definition["model"]["vocab"]
TOKEN = {"id": 900, "content": "<tool>", "single_word": False, "lstrip": False, "rstrip": False}


@pytest.mark.parametrize(
    "parts",
    [
        {"model": {"type": "BPE", "vocab": {}, "merges": []}},
        changed(unk_id=None),
        changed(vocab={"<unk>": 0, MARK: 1}),
        changed(unk_id=99_999),
        changed(unk_id=3),
        changed(vocab=[*VOCAB, VOCAB[9]]),
        changed(vocab=[*VOCAB, ["", -1.0]]),
        changed(vocab=[piece for piece in VOCAB if piece[0] != MARK]),
        changed(vocab=[*VOCAB, *BYTES]),
        changed(vocab=[*VOCAB, *BYTES[1:]], byte_fallback=True),
        {"added_tokens": [{**TOKEN, "normalized": False, "special": False}]},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        {"pre_tokenizer": metaspace(split=False)},
        {"pre_tokenizer": metaspace(replacement="_")},
        {"pre_tokenizer": behind_whitespace(metaspace("first"))},
        {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": metaspace("first")},
        {"normalizer": normalizer(TABLE, "NFKC")},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": replace({"String": "a"}, "b")},
        {"normalizer": MARKED_BLANKS, "pre_tokenizer": behind_whitespace(metaspace())},
        {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap("a", MARK)},
            "pre_tokenizer": behind_whitespace(metaspace()),
        },
    ],
)
def test_what_is_not_known_to_be_exact_is_refused(parts: Part, golden: Golden) -> None:
    tokenizer = JsonTokenizer("x", {**made("plain").definition, **parts}, None, ())
    golden.text(str(SplintrEngine.refuses(tokenizer)))
    with pytest.raises(Unsupported):
        SplintrEngine(tokenizer.json).load()


def test_no_special_token_is_read_in_a_text_and_none_is_added_to_it(golden: Golden) -> None:
    definition = copy.deepcopy(made("plain").definition)
    definition["added_tokens"].append({**TOKEN, "normalized": False, "special": True})
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
    }
    tokenizer = JsonTokenizer("special", definition, None, ())
    text = "a <tool>b<tool> </s> c"
    engine = make_engine("splintr", tokenizer)
    found = engine.encode_batch([text.encode()])[0].tolist()
    assert found == tokenizer.encode(text).tolist()
    assert 900 not in found
    assert engine.encode_batch([b"", b"a"])[1].tolist() == [0, len(tokenizer.encode("a"))]
    golden.text(str(SplintrEngine.refuses(parsing(tokenizer))))


def test_bytes_that_are_not_utf8_raise_with_their_position() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        engine_of(made, "plain").encode_batch([b"good", b"ab\xff"])
    assert caught.value.start == 2


@pytest.mark.parametrize("run", ["x", " ", "\n", "文字", MARK, "\U0001f9ff", "the word", "\x00"])
def test_a_long_run(run: str) -> None:
    text = run * (60_000 // len(run))
    assert ids_of(engine_of(made, "plain"), text) == made("plain").encode(text).tolist()


class TestChoice:
    samples = (b"The word a the\r\n", "é 文字 <unk> ".encode())

    def test_it_is_taken_for_unigram_models(self) -> None:
        lines: list[str] = []
        choice = choose_engine(made("trained"), self.samples, lines.append)
        assert choice.engine.name == choice.facts["name"] == "splintr"
        assert choice.facts["reference"].startswith("huggingface ")
        assert lines == []

    def test_not_where_it_refuses(self, golden: Golden) -> None:
        lines: list[str] = []
        refused = JsonTokenizer(
            "mine", {**made("plain").definition, **changed(vocab=[*VOCAB, *BYTES])}, None, ()
        )
        assert choose_engine(refused, self.samples, lines.append).engine.name == "huggingface"
        golden.text(lines[0], numbers=False)
        with golden.refused("engine-refused"):
            choose_engine(refused, self.samples, lines.append, "splintr")

    def test_without_it_the_reference_takes_over(
        self, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        facts = choose_engine(made("plain"), self.samples, str).facts
        assert chosen_before(facts, made("plain"), "auto") is not None
        monkeypatch.setitem(sys.modules, "splintr", None)
        lines: list[str] = []
        assert choose_engine(made("plain"), self.samples, lines.append).engine.name == "huggingface"
        golden.text(lines[0], numbers=False)
        assert chosen_before(facts, made("plain"), "auto") is None

    def test_another_version_is_refused(self, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
        version = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "9" if name == "splintr-rs" else version(name))
        golden.text(str(SplintrEngine.refuses(made("plain"))))

    def test_a_set_is_that_of_the_reference(self, tmp_path: Path) -> None:
        folder = tmp_path / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(made("trained").json, encoding="utf-8")
        tokenizer = read_tokenizer(folder, "mine")
        text = tmp_path / "text.txt"
        text.write_text("The word a the é\u3000文字 <unk>\U0001f9ff  naïve x \n" * 4_000, encoding="utf-8")
        written = {}
        for engine in ("auto", "huggingface"):
            options = Options(workers=2, engine=engine, block_bytes=30_000)
            made_set = pretokenize(TextFile(text), tokenizer, tmp_path / f"{engine}.npy", options)
            written[made_set.manifest["engine"]["name"]] = made_set.path.read_bytes()
        assert set(written) == {"splintr", "huggingface"}
        assert written["splintr"] == written["huggingface"]
