"""Stage records, as the memory room writes them, become one row a stage."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiment_utils.run_folder import RunFolder
from memory import record_to, stage
from memory.report.data.stage_rows import StageBook, stage_rows

MB = 1 << 20


def test_stages_that_ran_more_than_once_are_added_up(done_run: Any) -> None:
    rows = {row.name: row for row in stage_rows(RunFolder(done_run.path).stage_records)}
    assert list(rows)[:3] == ["start", "load_tokenizer", "open_dataset"]
    assert (rows["train"].times, rows["train"].seconds) == (10, 62.5)
    assert rows["train"].anon_change_bytes == 7.5 * MB
    assert rows["open_dataset"].anon_change_bytes == MB // 8
    anon = 66 + 82 + 0.125 + 0.75 + 68 + 0.25 + 14 + 38
    assert rows["first_step"].unreclaimable_bytes == (anon + 3) * MB
    assert rows["finish"].peak_bytes == (anon + 7.5 + 20 + (anon + 7.5) / 2 + 16) * MB
    assert all(row.ended and row.error is None and row.gpu_peak_bytes is None for row in rows.values())


def test_the_stage_that_a_run_was_lost_in_did_not_end(new_run: Callable[..., Any]) -> None:
    made = new_run()
    made.memory(killed_in="build_optimizer")
    rows = stage_rows(RunFolder(made.path).stage_records)
    assert [row.name for row in rows if not row.ended] == ["build_optimizer"]
    assert rows[-1].anon_change_bytes is None
    book = StageBook()
    for record in RunFolder(made.path).stage_records:
        book.add(record)
    assert (book.spans[-1].name, book.spans[-1].end_s) == ("build_optimizer", None)


def test_records_of_the_real_recorder(tmp_path: Path) -> None:
    held = []
    with record_to(tmp_path / "memory.jsonl", attempt=1, echo=None):
        with stage("outer"):
            with stage("inner"):
                held.append(bytearray(256 * MB))
            thread = threading.Thread(target=stage("beside")(lambda: None), name="helper")
            thread.start()
            thread.join()
        with contextlib.suppress(ValueError), stage("fails"):
            raise ValueError("no")
    run = RunFolder(tmp_path)
    assert run.damage == []
    assert len(run.stage_records) == 8
    rows = {row.name: row for row in stage_rows(run.stage_records)}
    assert [(row.name, row.depth) for row in rows.values()] == [
        ("outer", 0), ("inner", 1), ("beside", 0), ("fails", 0),
    ]  # fmt: skip
    for name in ("outer", "inner"):
        assert 200 * MB < (rows[name].anon_change_bytes or 0) < 320 * MB
    assert (rows["fails"].anon_change_bytes or 0) < 100 * MB
    assert (rows["fails"].error or "").startswith("ValueError")
    assert (rows["fails"].peak_bytes or 0) > 64 * MB
    book = StageBook()
    for record in run.stage_records:
        book.add(record)
    assert [(span.name, span.path, span.thread) for span in book.spans] == [
        ("outer", ("outer",), None), ("inner", ("outer", "inner"), None), ("beside", ("beside",), "helper"),
        ("fails", ("fails",), None),
    ]  # fmt: skip
    for span in book.spans:
        begin, end = (record["elapsed_s"] for record in run.stage_records if record["stage"] == span.name)
        assert (span.begin_s, span.end_s) == (begin, end)
