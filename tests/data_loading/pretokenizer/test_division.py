"""How a text is divided among tasks: evenly, at pieces. That no id changes is tested in test_tasks.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading import content_hash
from data_loading.pretokenizer.cuts import EVERY_CHARACTER, CutRule
from data_loading.pretokenizer.division import border, may_be_divided
from data_loading.pretokenizer.json_lines import JsonLines
from data_loading.pretokenizer.texts import TextFile

AT_SPACES = CutRule(before=(0x20,))
NO_RULE = CutRule(why_none="none")


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
