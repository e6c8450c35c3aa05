"""Where shares begin: at the first place behind a border that changes no id, wherever reads end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading import content_hash
from data_loading.pretokenizer import division
from data_loading.pretokenizer.cuts import EVERY_CHARACTER, CutRule
from data_loading.pretokenizer.division import border, may_be_divided, place_in_text
from data_loading.pretokenizer.json_lines import JsonLines
from data_loading.pretokenizer.texts import TextFile, divided
from tests.searched import examples

AT_SPACES = CutRule(before=(0x20,))
AT_LINES_TOO = CutRule(before=(0x20, 0x0A))
DROPPING = CutRule(before=(0x20,), drop_space=True)
NO_RULE = CutRule(why_none="none")
WORDS = ("a", "water", " ", "  ", "\n", "\r\n", "==", "\n==\n", "\n==\r\n", "=", "é", "x" * 9, "日")
some_text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(
    lambda words: "".join(words).encode()
)


def found(part: TextFile | JsonLines, rule: CutRule, byte: int, read: int) -> int:
    file = part.plain_file
    assert file is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "READ_BYTES", read)
        return place_in_text(part, file, rule, byte)


def first(places: list[int], byte: int, size: int) -> int:
    return min((place for place in places if place >= byte), default=size)


@settings(max_examples=examples(150))
@given(
    text=some_text,
    rule=st.sampled_from([AT_SPACES, AT_LINES_TOO, DROPPING, EVERY_CHARACTER]),
    byte=st.integers(1, 100),
    read=st.integers(1, 12),
)
def test_the_next_safe_cut(text: bytes, rule: CutRule, byte: int, read: int, tmp_path: Path) -> None:
    path, byte = tmp_path / "a.txt", min(byte, len(text))
    path.write_bytes(text)
    last = len(text) - 1 - rule.drop_space
    if rule.everywhere:
        places = [p for p in range(1, last + 1) if text[p] & 0xC0 != 0x80]
    else:
        places = [p for p in range(1, last + 1) if 0x21 <= text[p - 1] <= 0x7E and text[p] in rule.before]
    assert found(TextFile(path), rule, byte, read) == first(places, byte, len(text))


@settings(max_examples=examples(150))
@given(
    text=some_text,
    separator=st.sampled_from(["==", "=", ""]),
    byte=st.integers(1, 100),
    read=st.integers(1, 12),
)
def test_the_next_document(text: bytes, separator: str, byte: int, read: int, tmp_path: Path) -> None:
    path, byte = tmp_path / "a.txt", min(byte, len(text))
    path.write_bytes(text)
    chunks = list(divided(iter([(text, 0)]), separator.encode(), "", at_line_start=True))
    places = [chunk.offset for chunk, before in zip(chunks[1:], chunks, strict=False) if before.ends_document]
    part = TextFile(path, document_separator=separator)
    assert found(part, NO_RULE, byte, read) == first(places, byte, len(text))


@settings(max_examples=examples(60))
@given(text=some_text, byte=st.integers(1, 100), read=st.integers(1, 12))
def test_the_next_line(text: bytes, byte: int, read: int, tmp_path: Path) -> None:
    path, byte = tmp_path / "a.jsonl", min(byte, len(text))
    path.write_bytes(text)
    places = [p + 1 for p, one in enumerate(text) if one == 0x0A]
    assert found(JsonLines(path), NO_RULE, byte, read) == first(places, byte, len(text))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=5),
    tasks=st.integers(1, 9),
    piece=st.integers(1, 70),
)
def test_borders_ascend_at_pieces_and_are_even(
    sizes: list[tuple[int, bool]], tasks: int, piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    parts = []
    for number, (size, is_plain) in enumerate(sizes):
        path = folder / f"{number}.txt"
        path.write_bytes(b"x" * size)
        parts.append(TextFile(path, "utf-8" if is_plain else "latin-1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash, "PIECE_BYTES", piece)
        borders = [border(parts, AT_SPACES, number, tasks) for number in range(tasks + 1)]
    assert borders == sorted(borders)
    assert (borders[0], borders[-1]) == ((0, 0), (len(parts), 0))
    before = [sum(size for size, _ in sizes[:number]) for number in range(len(sizes) + 1)]
    for number, (file, byte) in enumerate(borders):
        assert byte % piece == 0
        assert file == len(parts) or byte < sizes[file][0]
        assert byte == 0 or sizes[file][1]
        coarsest = max((piece if is_plain else size) for size, is_plain in sizes)
        wanted = before[-1] * number / tasks
        assert abs(before[file] + byte - wanted) <= coarsest / 2 + 1


def test_what_may_be_divided(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("water")
    assert may_be_divided(TextFile(path), AT_SPACES)
    assert not may_be_divided(TextFile(path), NO_RULE)
    assert not may_be_divided(TextFile(path, errors="ignore"), EVERY_CHARACTER)
    assert may_be_divided(TextFile(path, errors="ignore", document_separator="="), NO_RULE)
    assert not may_be_divided(TextFile(path, "latin-1", document_separator="="), NO_RULE)
    assert may_be_divided(JsonLines(path), NO_RULE)
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0")
    assert not may_be_divided(TextFile(path), AT_SPACES)
