"""What fits a terminal: sparklines, colour only where it is wanted."""

from __future__ import annotations

import io
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.terminal import Terminal, facts, heading, indented

LEVELS = "▁▂▃▄▅▆▇█"


@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), min_size=1, max_size=300),
    st.integers(1, 80),
)
def test_a_sparkline_keeps_within_its_width_and_its_levels(values: list[float], width: int) -> None:
    line = Terminal().sparkline(values, width)
    if any(map(math.isfinite, values)) or line:
        assert set(line) <= {*LEVELS, " "}
        assert len(line) in (0, min(width, len(values)))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60, unique=True))
def test_a_sparkline_rises_where_the_values_do(values: list[float]) -> None:
    levels = [LEVELS.index(block) for block in Terminal().sparkline(values, 60)]
    by_value = [level for _, level in sorted(zip(values, levels, strict=True))]
    assert by_value == sorted(levels)
    assert (by_value[0], by_value[-1]) == (0, 7)


def test_a_sparkline_of_a_falling_curve() -> None:
    values = [8.0, 7, 6, 5, 4, 3, 2, 1]
    assert Terminal().sparkline(values, 8) == "█▇▆▅▄▃▂▁"
    assert Terminal(unicode=False).sparkline(values, 8) == "#%*+=-._"
    assert Terminal().sparkline([v for v in values for _ in range(10)], 8) == "█▇▆▅▄▃▂▁"
    assert Terminal().sparkline([1.0, math.nan, 2.0], 3) == "▁ █"
    assert Terminal().sparkline([3.0, 3.0], 60) == "▁▁"
    assert Terminal().sparkline([], 60) == ""


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool, encoding: str) -> None:
        super().__init__()
        self._is_terminal, self._encoding = is_terminal, encoding

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def encoding(self) -> str:
        return self._encoding


@pytest.mark.parametrize(
    ("is_terminal", "encoding", "variables", "color", "unicode"),
    [
        (True, "utf-8", {"TERM": "xterm-256color"}, True, True),
        (True, "utf-8", {"TERM": "xterm-256color", "NO_COLOR": "1"}, False, True),
        (True, "utf-8", {"TERM": "dumb"}, False, False),
        (True, "utf-8", {"TERM": "linux"}, True, False),
        (True, "iso8859-1", {"TERM": "xterm"}, True, False),
        (False, "utf-8", {"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "40"}, False, True),
        (False, "ascii", {}, False, False),
    ],
)
def test_what_stdout_can_show(
    is_terminal: bool,
    encoding: str,
    variables: dict[str, str],
    color: bool,
    unicode: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Screen(is_terminal, encoding))
    terminal = Terminal.of_stdout()
    assert (terminal.color, terminal.unicode) == (color, unicode)
    assert ("\x1b[" in terminal.print(heading("Title"))) == color
    assert terminal.width == 100 or is_terminal
    assert Terminal.of_stdout(color=True).color
    assert not Terminal.of_stdout(color=False).color


def test_text_is_not_taken_for_markup_and_paths_are_not_broken() -> None:
    path = "runs/" + "a-very-long-name/" * 12
    printed = Terminal().print(indented("[bold] [/nothing]"), facts([("path", path)]))
    assert printed.splitlines() == ["  [bold] [/nothing]", f"  path        {path}"]
