"""What the plan says of runs without a place to cut at is what the work says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer import long_runs
from data_loading.pretokenizer.blocks import make_blocks
from data_loading.pretokenizer.cuts import CutRule
from data_loading.pretokenizer.long_runs import long_run
from data_loading.pretokenizer.texts import TextFile
from experiment_utils.errors import UserError
from tests.searched import examples

RULES = (
    CutRule(before=(0x20,)),
    CutRule(before=(0x20, 0x0A), behind_words=True, letters_only=True),
    CutRule(before=(0x20,), drop_space=True),
    CutRule(why_none="none"),
)
pieces = st.sampled_from(["a", "a ", "日", "日\n", "。\n日", "x" * 30, "日本" * 20, " " * 20, "a b c "])


def told(path: Path, rule: CutRule, limit: int) -> str | None:
    """By the work itself."""
    try:
        for _ in make_blocks(TextFile(path).chunks(), rule, 16, limit):
            pass
    except UserError as error:
        return str(error)
    return None


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(pieces, min_size=1, max_size=40).map("".join), limit=st.integers(20, 200))
@example(text="a " + "日" * 40 + " a" * 100, limit=100)
@example(text="日" * 40, limit=120)
@example(text="日" * 41, limit=120)
def test_the_plan_and_the_work_agree(text: str, limit: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    for rule in RULES:
        for read in (1, 7, 1 << 16):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(long_runs, "_FIRST_BYTES", read)
                patch.setattr(long_runs, "_MOST_BYTES", 4 * read)
                found = long_run(TextFile(path), rule, limit)
            assert (None if found is None else str(found)) == told(path, rule, limit)


def test_what_cannot_be_looked_into_is_left_to_the_work(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("日" * 1000, encoding="utf-8")
    assert long_run(TextFile(path), RULES[0], 100) is not None
    assert long_run(TextFile(path, document_separator="=="), RULES[0], 100) is None
    assert long_run(TextFile(path, encoding="utf-16"), RULES[0], 100) is None


def test_of_a_large_text_places_all_over_it_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_runs, "_MOST_PLACES", 4)
    path = tmp_path / "a.txt"
    path.write_text("a b " * 10_000 + "x" * 40_000, encoding="utf-8")
    assert long_run(TextFile(path), RULES[0], 1000) is not None
