"""Lines and tables fit a terminal: broken between words, columns removed by importance."""

from __future__ import annotations

import io

import pytest

from experiment_utils.display import columns_of, table
from experiment_utils.typed_here import TypedHere, on_screen

COMMAND = (
    "python -m slurm resubmit runs/a_long_name_of_a_study --only never_started --mem x2 'slurm.x=[a b c]' x"
)


class Terminal(io.StringIO):
    """A terminal of as many columns as COLUMNS says."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 57, 80, 120])
@pytest.mark.parametrize(
    "text",
    [
        "error: " + "words of a message that is long " * 5,
        "model   transformer, width 256, " + "16 layers, " * 12,
        f"next: {COMMAND}   (the cause, what to change)",
        f"  {COMMAND}",
        f"  {COMMAND}      what it is for, said at length so that it does not fit",
        "\x1b[1m  bold words " + "and more of them " * 9 + "\x1b[0m",
        "  label       \x1b[2m" + "dim words " * 12 + "\x1b[0m",
        "漢字 " * 40,
    ],
)
def test_lines_fit_and_lose_no_word(text: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    monkeypatch.setattr("experiment_utils.typed_here.as_typed_here", lambda text: text)
    lines = on_screen(text, columns).split("\n")
    plain = [Text.from_ansi(line) for line in lines]
    assert max(line.cell_len for line in plain) <= columns
    assert " ".join(lines).replace(" \\ ", " ").split() == text.split()


def test_a_command_is_continued_so_that_a_shell_reads_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.setattr("experiment_utils.typed_here.as_typed_here", lambda text: text)
    lines = on_screen(f"  {COMMAND}", 60)
    assert lines.count(" \\\n") == lines.count("\n") > 0
    assert shlex.split(lines.replace("\\\n", " ")) == shlex.split(COMMAND)
    assert "'slurm.x=[a b c]'" in lines


@pytest.mark.parametrize(
    "text", ['{"a": "' + "b " * 60 + '"}', '[\n  "' + "b " * 60 + '"\n]', "\r\x1b[K" + "b " * 60]
)
def test_json_and_moving_lines_are_not_folded(text: str) -> None:
    assert on_screen(text, 80) == text


def test_only_a_terminal_folds_and_not_what_is_verbatim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    pipe, terminal, verbatim = io.StringIO(), Terminal(), Terminal()
    text = "word " * 30
    TypedHere(pipe).write(text)
    TypedHere(terminal).write(text)
    TypedHere(verbatim).write_verbatim(text)
    assert (columns_of(pipe), columns_of(terminal)) == (None, 60)
    assert pipe.getvalue() == verbatim.getvalue() == text
    assert terminal.getvalue().count("\n") == 2


TITLES = ("run", "state", "step", "memory", "attempt", "reason")
ROWS = [
    ("32d-lr0.001-seed0-dcaf18e0", "cancelled", "30%", "313 MB", "1", "its job was cancelled by root " * 2),
    ("32d-lr0.003-seed0-9a3011de", "done", "100%", "316 MB", "1", ""),
]


def test_a_table_loses_the_least_important_columns_and_its_reason_last() -> None:
    def shown(columns: int) -> list[str]:
        lines = table(TITLES, ROWS, right=(2, 3, 4), least=("attempt", "memory"), columns=columns)
        assert max(map(len, lines)) <= columns
        return lines

    assert shown(200)[0].split() == list(TITLES)
    assert shown(101)[0].split() == ["run", "state", "step", "memory", "reason"]
    assert shown(90)[0].split() == ["run", "state", "step", "reason"]
    narrow = shown(60)
    assert narrow[0].split() == ["run", "state", "step", "reason"]
    assert narrow[1].startswith("...")
    assert narrow[-1].rpartition(": ")[2].split(", ") == ["memory", "attempt"]
    assert shown(40)[0].split() == ["run", "reason"]


def test_rows_that_must_be_one_line_are_cut() -> None:
    lines = table(TITLES, ROWS, right=(2, 3, 4), least=("attempt", "memory"), columns=80, is_folded=False)
    assert len(lines) == 3
    assert lines[1].endswith("...")
    assert max(map(len, lines)) <= 80


def test_a_table_of_numbers_loses_columns_from_the_right() -> None:
    titles = ("run", *(f"column_{number}" for number in range(12)))
    lines = table(titles, [("a", *("1.0000" for _ in range(12)))], right=range(1, 13), columns=80)
    assert lines[0].split() == list(titles[:8])
    assert lines[2].rpartition(": ")[2].startswith("column_7")
