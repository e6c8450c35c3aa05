"""A cut that the rule allows never changes an id: held against encoding the text whole."""

from __future__ import annotations

import base64
import json
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from data_loading.pretokenizer.blocks import make_blocks
from data_loading.text_io.chunks import Chunk
from data_loading.tokenizers.cutting.cuts import CutRule, cut_rule, first_cut, last_cut
from data_loading.tokenizers.cutting.split_patterns import GPT2_PATTERN
from data_loading.tokenizers.cutting.word_boundaries import DOUBTFUL, letters
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer, Tokenizer
from tests.data_loading.conftest import WITH_RULE, WITHOUT_RULE, hostile_text, tokenizer_folder_text
from tests.searched import examples

EVERY_LETTER = set(map(chr, letters()))
property_test = settings(max_examples=examples(40))
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")


def safe_cuts(data: bytes, rule: CutRule) -> Iterator[int]:
    """Every cut that the rule allows, found the slow way."""
    text = data.decode()
    p = 0
    for last, first in pairwise(text):
        p += len(last.encode())
        after_word = "!" <= last <= "~" or (rule.behind_words and is_word(last, rule))
        begins_line = "!" <= first <= "~" or is_word(first, rule)
        at_line = rule.at_lines and last == "\n" and begins_line and first != "/"
        if (rule.everywhere or (after_word and ord(first) in rule.before) or at_line) and (
            not rule.drop_space or p + 1 < len(data)
        ):
            yield p


def is_word(character: str, rule: CutRule) -> bool:
    if rule.letters_only:
        return character in EVERY_LETTER
    return character > "\x7f" and not character.isspace() and ord(character) not in DOUBTFUL


def encoded_apart(tokenizer: Tokenizer, data: bytes, cuts: list[int]) -> list[int]:
    ids: list[int] = []
    starts = [0, *[cut + tokenizer.cut_rule.drop_space for cut in cuts]]
    for start, stop in zip(starts, [*cuts, len(data)], strict=True):
        ids += tokenizer.encode(data[start:stop].decode()).tolist()
    return ids


@pytest.mark.parametrize("family", WITH_RULE)
@property_test
@given(text=hostile_text)
@example(text="a b 'S  the word\n\n <tool> x! the\r\n<tool>  a </s> b<|endoftext|> a  ")
def test_encoding_apart_at_every_safe_cut_gives_the_ids_of_the_whole(
    text: str, family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = read_tokenizer(tokenizer_folder(family), family)
    data = text.encode()
    cuts = list(safe_cuts(data, tokenizer.cut_rule))
    assert encoded_apart(tokenizer, data, cuts) == tokenizer.encode(text).tolist()


LETTERS_ONLY = (
    *("metaspace_bpe", "llama2", "marks_only", "mistral", "unigram", "wordpiece", "unknown", "nfkc"),
    *("nfkc_cl100k", "nfd_o200k", "t5", "whole_words", "line_feed_alone", "gemma", "deepseek", "tekken"),
)
"""Where something else than a known pattern divides the text, or a normalizer changes it before."""
AT_LINE_FEEDS = (
    *("gpt2", "gpt2_as_split", "digits", "falcon", "added", "special_rstrip", "neox_spaces", "nfkc"),
    *("unigram", "t5", "wordpiece", "whole_words", "line_feed_alone"),
)
AT_LINES = ("cl100k_ignore_merges", "o200k_removed", "qwen2", "nfkc_cl100k", "nfd_o200k")


def check_beside_cuts(tokenizer: Tokenizer, points: Iterable[int]) -> None:
    form = "a{0} b\n{0}\n\n {0}!\n{0}  {0}\n x\n{0}s\n/{0}\n\n{0}{0}字\n{0}。 {0}が\n字{0}\n"
    text = "".join(form.format(chr(point)) for point in points if not 0xD800 <= point < 0xE000)
    data = text.encode()
    cuts = list(safe_cuts(data, tokenizer.cut_rule))
    assert len(cuts) > len(text) // 60
    assert encoded_apart(tokenizer, data, cuts) == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("family", WITH_RULE)
def test_no_character_beside_a_cut_changes_an_id(
    family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    found = read_tokenizer(tokenizer_folder(family), family)
    check_beside_cuts(
        found, [*range(0x180), *range(0x300, 0x310), *DOUBTFUL, *BLANK, 0x1F600, 0x4E2D, *letters()[::400]]
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    "family",
    ["gpt2", "cl100k_ignore_merges", "o200k_removed", "qwen2", "llama2", "unknown", *LETTERS_ONLY[7:]],
)
def test_no_character_of_unicode_beside_a_cut_changes_an_id(
    family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    check_beside_cuts(
        read_tokenizer(tokenizer_folder(family), family), [*range(0x3400), *range(0xA000, 0x1F000)]
    )


BLANK = [point for point in range(0x110000) if chr(point).isspace()]


def test_all_whitespace_outside_ascii_is_doubtful() -> None:
    assert {point for point in BLANK if point > 0x7F} <= set(DOUBTFUL)
    assert all(re.fullmatch(r"\S", chr(point)) for point in {*DOUBTFUL} - {*BLANK})


@pytest.mark.parametrize("family", [*AT_LINE_FEEDS, *AT_LINES])
def test_japanese_without_a_space_is_cut(family: str, tokenizer_folder: Callable[[str], Path]) -> None:
    tokenizer = read_tokenizer(tokenizer_folder(family), family)
    data = "吾輩は猫である。名前はまだ無い。\n".encode() * 100
    assert len(list(safe_cuts(data, tokenizer.cut_rule))) >= 99


@property_test
@given(text=hostile_text, junk=st.binary(max_size=3), number=st.integers(0, 400))
def test_bytes_that_are_ill_formed_are_no_characters(text: str, junk: bytes, number: int) -> None:
    """What `--errors ignore` leaves of each part must be cut at a safe place as well."""
    data = text.encode()
    data = data[:number] + junk + data[number:]
    rule, kept = RULES[5], data.decode(errors="ignore")
    safe = {0, *safe_cuts(kept.encode(), rule)}
    start = 0
    while (start := first_cut(data, rule, start) or 0) > 0:
        assert len(data[:start].decode(errors="ignore").encode()) in safe


@pytest.mark.parametrize("family", WITH_RULE)
def test_these_families_have_a_rule(family: str, tokenizer_folder: Callable[[str], Path]) -> None:
    rule = read_tokenizer(tokenizer_folder(family), family).cut_rule
    assert rule.exists, rule.why_none
    assert (0x0A in rule.before) == (family in AT_LINE_FEEDS)
    assert rule.drop_space == (family == "llama2")
    assert rule.behind_words
    assert rule.letters_only == (family in LETTERS_ONLY)
    assert rule.at_lines == (family in AT_LINES)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["model"]["vocab"].update({"\nx": 2000}),
        lambda found: found["model"]["vocab"].pop("\n"),
        lambda found: found.update(pre_tokenizer=METASPACE),
        lambda found: found["added_tokens"].append({"content": "x\n", "special": True}),
        lambda found: found["added_tokens"].append({"content": "\n", "single_word": True}),
    ],
)
def test_no_cut_at_a_line_feed_that_may_be_joined(change: Callable[[dict[str, Any]], object]) -> None:
    definition = json.loads(tokenizer_folder_text("line_feed_alone"))
    definition["model"]["byte_fallback"] = False
    assert cut_rule(definition).before == (0x20, 0x0A)
    change(definition)
    assert cut_rule(definition).before == (0x20,)


@pytest.mark.parametrize(
    ("scheme", "cuts"), [("first", (0x20,)), ("always", (0x20, 0x0A)), ("never", (0x20, 0x0A))]
)
def test_no_cut_at_a_line_feed_where_only_the_beginning_of_a_text_is_marked(
    scheme: str, cuts: tuple[int, ...]
) -> None:
    """A Metaspace behind the splitter marks the first piece of a text, be it a line feed and a word."""
    split = {"type": "Split", "pattern": {"Regex": GPT2_PATTERN}, "behavior": "Isolated", "invert": False}
    marks = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    steps = {"type": "Sequence", "pretokenizers": [split, marks]}
    definition = {"pre_tokenizer": steps, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    assert cut_rule(definition).before == cuts


def test_a_line_feed_that_falls_back_to_its_byte_is_alone_where_no_merge_takes_it() -> None:
    definition = json.loads(tokenizer_folder_text("line_feed_alone"))
    model = definition["model"]
    model["vocab"] = {token: index for token, index in model["vocab"].items() if "\n" not in token}
    model["merges"] = [pair for pair in model["merges"] if "\n" not in "".join(pair)]
    assert cut_rule(definition).before == (0x20, 0x0A)
    model["merges"].append(["<0x0D>", "<0x0A>"])
    assert cut_rule(definition).before == (0x20,)
    del model["merges"][-1], model["vocab"]["<0xFF>"]
    assert cut_rule(definition).before == (0x20,)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_what_normalizers_make_of_letters(normalizer: str) -> None:
    """Of each alone, and of a line feed; the library gives the characters no context."""
    kind = getattr(normalizers, normalizer)()
    for character in map(chr, letters()):
        made = kind.normalize_str(character)
        assert made
        assert not any(other.isspace() or other == "▁" for other in made)
        assert made[0] != "/"
        assert not unicodedata.category(made[0]).startswith("M")
    assert kind.normalize_str("a\n字\n") == "a\n字\n".replace("\n", " " if normalizer == "Nmt" else "\n")


TEXT_THAT_A_CUT_WOULD_CHANGE = {
    "rstrip": "a <tool> b",
    "space_inside": "the word",
    "special_space_inside": "a the",
    "single_word": "a the",
    "no_pre_tokenizer": "return the the",
    "spanning": "self the word",
    "strip": "a b",
    "replace": "! !!",
    "unknown_split": "a the",
}


@pytest.mark.parametrize("family", WITHOUT_RULE)
def test_where_a_cut_may_change_ids_there_is_no_rule(
    family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = read_tokenizer(tokenizer_folder(family), family)
    assert not tokenizer.cut_rule.exists
    assert tokenizer.cut_rule.why_none
    data = TEXT_THAT_A_CUT_WOULD_CHANGE[family].encode()
    cuts = list(safe_cuts(data, CutRule(before=(0x20,))))
    assert encoded_apart(tokenizer, data, cuts) != tokenizer.encode(data.decode()).tolist()


@property_test
@given(text=hostile_text)
def test_bytes_may_be_cut_between_any_two_characters(text: str) -> None:
    tokenizer, data = BytesTokenizer(), text.encode()
    cuts = list(safe_cuts(data, tokenizer.cut_rule))
    assert len(cuts) == max(len(text) - 1, 0)
    assert encoded_apart(tokenizer, data, cuts) == tokenizer.encode(text).tolist() == list(data)


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
RULES = (
    CutRule(before=(0x20,)),
    CutRule(before=(0x20, 0x0A)),
    CutRule(everywhere=True),
    CutRule((0x20,), drop_space=True),
    CutRule(before=(0x20, 0x0A), behind_words=True),
    CutRule(before=(0x20,), behind_words=True, at_lines=True),
    CutRule(before=(0x20, 0x0A), behind_words=True, at_lines=True, letters_only=True),
)


@property_test
@given(text=hostile_text)
def test_first_and_last_cut_find_the_first_and_the_last(text: str) -> None:
    data = text.encode()
    for rule in RULES:
        cuts = list(safe_cuts(data, rule))
        for start in range(0, len(data), 3):
            assert first_cut(data, rule, start) == next((c for c in cuts if c > start), None)
            for stop in (start + 1, start + 5, len(data)):
                inside = [c for c in cuts if start < c <= stop]
                assert last_cut(data, rule, start, stop) == (inside[-1] if inside else None)


@pytest.mark.parametrize("distance", [1, 4095, 4096, 4097, 40_000])
def test_cuts_are_found_across_the_windows_of_the_search(distance: int) -> None:
    data = b"x" * distance + b" " + b"y" * distance
    assert last_cut(data, RULES[0], 0, len(data)) == first_cut(data, RULES[0], 0) == distance


@settings(max_examples=examples(15))
@given(text=hostile_text)
def test_blocks_hold_the_whole_text_cut_at_safe_places_only(text: str) -> None:
    data = text.encode()
    for rule in RULES:
        allowed = {0, len(data), *safe_cuts(data, rule)}
        for block_bytes in (1, 3, 7, 50):
            for read in (1, 2, 1000):
                chunks = [Chunk(data[i : i + read], "t", i, False) for i in range(0, len(data), read)]
                blocks = list(make_blocks([*chunks, Chunk(b"", "t", len(data), True)], rule, block_bytes))
                parts = [chunk for block in blocks for chunk in block.chunks]
                gap = b" " if rule.drop_space else b""
                assert gap.join(part.data for part in parts) == data
                assert {part.offset - (len(gap) if part.offset else 0) for part in parts} <= allowed
                assert [part.ends_document for part in parts] == [False] * (len(parts) - 1) + [True] * bool(
                    parts
                )
                assert [block.index for block in blocks] == list(range(len(blocks)))


def charsmap(character: str, replacement: str) -> str:
    """SentencePiece's compiled table of one ASCII character: a double array of 512 units, then the texts."""
    units = [0] * 512
    units[0] = 256 << 10  # the root's children stand at 256 ^ label
    place = 256 ^ ord(character)
    units[place] = 128 << 10 | 1 << 8 | ord(character)  # has a value, at place ^ 128
    units[place ^ 128] = 0  # the text begins at byte 0
    table = struct.pack("<I512I", 4 * len(units), *units) + replacement.encode() + b"\0"
    return base64.b64encode(table).decode()


@pytest.mark.parametrize(
    ("character", "replacement", "safe"),
    [
        ("a", "b", True),
        ("a", "bcd", True),
        ("a", " ", False),
        ("a", "", False),
        ("a", "b c", False),
        (" ", "_", False),
    ],
)
def test_a_precompiled_table_is_safe_when_it_leaves_spaces_and_words_where_they_are(
    character: str, replacement: str, safe: bool
) -> None:
    definition = json.loads(tokenizer_folder_text("unigram"))
    definition["normalizer"] = {
        "type": "Precompiled",
        "precompiled_charsmap": charsmap(character, replacement),
    }
    rule = cut_rule(definition)
    assert rule.exists == safe
    assert rule.behind_words == safe
    assert safe or rule.why_none


@pytest.mark.parametrize(
    ("character", "replacement", "before"),
    [("\n", " ", (0x20, 0x0A)), ("\n", "", (0x20,)), ("a", "b", (0x20,))],
)
def test_a_precompiled_table_may_make_a_space_of_a_line_feed(
    character: str, replacement: str, before: tuple[int, ...]
) -> None:
    definition = json.loads(tokenizer_folder_text("t5"))
    table = {"type": "Precompiled", "precompiled_charsmap": charsmap(character, replacement)}
    definition["normalizer"] = table
    assert cut_rule(definition).before == before
    if 0x0A in before:
        check_beside_cuts(
            JsonTokenizer("t5", definition, None, ()), [*range(0x180), *BLANK, *letters()[::400]]
        )
