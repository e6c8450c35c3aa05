"""A cut that the rule allows never changes an id: held against encoding the text whole."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from data_loading.pretokenizer.blocks import Chunk, make_blocks
from data_loading.pretokenizer.cuts import CutRule, cut_rule, first_cut, last_cut
from data_loading.tokenizer import BytesTokenizer, Tokenizer
from data_loading.tokenizer_files import read_tokenizer
from tests.data_loading.conftest import WITH_RULE, WITHOUT_RULE, hostile_text, tokenizer_folder_text

property_test = settings(max_examples=40)


def safe_cuts(data: bytes, rule: CutRule) -> Iterator[int]:
    """Every cut that the rule allows, found the slow way."""
    for p in range(1, len(data)):
        after_printable = 0x21 <= data[p - 1] <= 0x7E
        safe = (after_printable and data[p] in rule.before) or (rule.everywhere and data[p] & 0xC0 != 0x80)
        if safe and (not rule.drop_space or p + 1 < len(data)):
            yield p


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


@pytest.mark.parametrize("family", WITH_RULE)
def test_these_families_have_a_rule(family: str, tokenizer_folder: Callable[[str], Path]) -> None:
    rule = read_tokenizer(tokenizer_folder(family), family).cut_rule
    assert rule.exists, rule.why_none
    assert (0x0A in rule.before) == (
        family in ("gpt2", "gpt2_as_split", "digits", "falcon", "added", "special_rstrip")
    )
    assert rule.drop_space == (family == "llama2")


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


RULES = (
    CutRule(before=(0x20,)),
    CutRule(before=(0x20, 0x0A)),
    CutRule(everywhere=True),
    CutRule((0x20,), drop_space=True),
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


@property_test
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
    assert safe or "Precompiled normalizer that turns" in rule.why_none
