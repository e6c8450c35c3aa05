"""A folder as input: links are followed, and one line counts what is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from tests.golden_text import Golden


def opened(argument: Path | str, **options: str) -> Inputs:
    return open_inputs([str(argument)], InputOptions(**options))


def names(inputs: Inputs) -> list[str]:
    return [Path(part.argument).name for part in inputs.parts]


def notes(inputs: Inputs) -> str:
    return "\n".join(inputs.notes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts here and behind a link, and what is no text."""
    folder, elsewhere = tmp_path / "set", tmp_path / "elsewhere"
    (folder / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "a.txt").write_text("a")
    (elsewhere / "b.txt").write_text("b")
    (folder / "linked").symlink_to(elsewhere)
    for name in ("x.md", "y.md", "x.json", "README"):
        (folder / "sub" / name).write_text('{"text": "c"}\n')
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    (folder / ".hidden").write_text("d")
    return folder


def test_links_are_followed(folder: Path) -> None:
    assert names(opened(folder)) == ["a.txt", "b.txt"]


def test_what_is_left_out_is_counted_in_one_line(folder: Path, golden: Golden) -> None:
    golden.text(notes(opened(folder)))


def test_nothing_is_said_where_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    assert notes(opened(tmp_path)) == ""


def test_text_field_takes_files_with_fields(folder: Path) -> None:
    (folder / "a.txt").rename(folder / "a.jsonl")
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    source = opened(folder, text_field="text")
    assert "x.json" in names(source)
    assert ".json" not in notes(source)


def test_pattern_takes_all_that_it_matches(folder: Path, golden: Golden) -> None:
    assert sorted(names(opened(folder / "sub" / "*.md"))) == ["x.md", "y.md"]
    (folder / "gone.txt").unlink()
    source = opened(folder / "**")
    assert sorted(names(source)) == ["README", "a.txt", "b.txt", "x.json", "x.md", "y.md"]
    golden.text(notes(source))


def test_loop_is_refused(folder: Path, golden: Golden) -> None:
    (folder / "sub" / "up").symlink_to(folder)
    with golden.refused("input-link-loop"):
        opened(folder)


def test_link_to_itself_is_a_broken_link(folder: Path, golden: Golden) -> None:
    (folder / "self").symlink_to("self")
    golden.text(notes(opened(folder)))


def test_folder_that_cannot_be_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with golden.refused("file-unreadable"):
        opened(folder)


def test_rows_read_as_text_are_noted(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "x.csv").write_text("id,text\n1,a\n")
    golden.text(notes(opened(tmp_path / "x.csv")))


def test_sums_over_files_are_taken_once(tmp_path: Path) -> None:
    """Sizes and documents of the files before are not summed again for each file."""
    asked = 0

    class Counting(int):
        def __radd__(self, other: int) -> int:
            nonlocal asked
            asked += 1
            return int(self) + other

    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text(f"{number}")
    source = opened(tmp_path)
    for part in source.parts:
        part.stream.total_bytes = Counting(part.total_bytes)  # type: ignore[attr-defined, arg-type]
    done = [source.done_bytes for _ in source.chunks()]
    assert done == sorted(done)
    assert asked <= 4 * len(source.parts)
