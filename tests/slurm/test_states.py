"""docs/slurm.md shows the tables that the code goes by."""

from __future__ import annotations

from pathlib import Path

from slurm.states import STATES, precedence_table, words_table

PAGE = (Path(__file__).parents[2] / "docs" / "slurm.md").read_text()


def test_the_page_has_the_tables_of_the_code() -> None:
    assert precedence_table() in PAGE, "print(slurm.states.precedence_table())"
    assert words_table() in PAGE, "print(slurm.states.words_table())"


def test_the_page_names_every_state() -> None:
    assert all(f"`{state}`" in PAGE for state in STATES)
