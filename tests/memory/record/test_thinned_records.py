"""Of very many stage records, those that stay tell the same end, the same peak and the same growth."""

from __future__ import annotations

from typing import Any

from memory.record.thinned_records import MOST, ThinnedRecords


def record(event: str, stage: str, depth: int, elapsed_s: float, u: int = 0) -> dict[str, Any]:
    return {
        "rank": 0, "event": event, "stage": stage, "depth": depth, "elapsed_s": elapsed_s,
        "snapshot": {"unreclaimable_bytes": u},
    }  # fmt: skip


def test_what_stands_open_and_the_highest_stay() -> None:
    kept = ThinnedRecords()
    kept.add(record("begin", "train", 0, 0.0))
    for step in range(1, 6 * MOST):
        high = 10**9 if step == 777 else step
        kept.add(record("begin", "step", 1, step))
        kept.add(record("begin", "forward", 2, step))
        kept.add(record("end", "forward", 2, step, high))
        kept.add(record("end", "step", 1, step, step))
    kept.add(record("begin", "save", 1, step + 1))
    found = kept.by_rank[0]
    assert len(found) <= 2 * MOST
    assert [one["elapsed_s"] for one in found] == sorted(one["elapsed_s"] for one in found)
    assert max(one["snapshot"]["unreclaimable_bytes"] for one in found) == 10**9
    waiting: list[str] = []
    for one in found:
        if one["event"] == "begin":
            waiting.append(one["stage"])
        else:
            assert waiting.pop() == one["stage"]
    assert waiting == ["train", "save"]
    steps = [one["elapsed_s"] for one in found if one["stage"] == "step"]
    assert steps[0] < MOST < 5 * MOST < steps[-1]


def test_few_are_all_kept() -> None:
    kept = ThinnedRecords()
    all_of_them = [record("begin", "x", 0, number) for number in range(MOST)]
    for one in all_of_them:
        kept.add(one)
    assert kept.by_rank == {0: all_of_them}


def test_records_without_an_end_do_not_pile_up() -> None:
    kept = ThinnedRecords()
    for number in range(3 * MOST):
        kept.add(record("begin", f"x{number}", 0, number))
    assert len(kept.by_rank[0]) <= 2 * MOST
    assert kept.by_rank[0][-1]["elapsed_s"] == 3 * MOST - 1
