"""docs/slurm.md shows the tables that the code goes by."""

from __future__ import annotations

from pathlib import Path

from memory.explain.verdict.explanation import VERDICTS
from slurm.states import ENDED, FROM_SLURM, FROM_VERDICT, STATES
from slurm.status.state_table import as_markdown

PAGE = (Path(__file__).parents[2] / "docs" / "slurm.md").read_text()


def words_table() -> str:
    """FROM_SLURM and FROM_VERDICT as docs/slurm.md shows them, in Markdown."""
    lines = ["| state | Slurm's words | memory's verdicts |", "|---|---|---|"]
    for state in STATES:
        told = [
            ", ".join(f"`{word}`" for word, means in words.items() if means == state)
            for words in (FROM_SLURM, FROM_VERDICT)
        ]
        if any(told):
            lines.append(f"| `{state}` | {told[0]} | {told[1]} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_tables_of_the_code() -> None:
    assert as_markdown() in PAGE, "print(slurm.status.state_table.as_markdown())"
    assert words_table() in PAGE, "print(tests.slurm.test_states.words_table())"


def test_the_page_names_every_state() -> None:
    assert all(f"`{state}`" in PAGE for state in STATES)


def test_words_of_slurm_and_of_memory_are_states() -> None:
    assert set(FROM_SLURM.values()) <= set(STATES)
    assert set(FROM_VERDICT) == set(VERDICTS)
    assert set(FROM_VERDICT.values()) <= set(ENDED)
