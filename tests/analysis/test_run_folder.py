"""A run folder reads as plain values, whatever a killed run left in it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.summary import run_page
from analysis.terminal import Terminal
from experiment_utils.run_folder import RunFolder
from tests.golden_text import Golden


def test_a_finished_run_reads_whole(done_run: Any) -> None:
    run = RunFolder(done_run.path)
    assert run.status["state"] == "done"
    assert run.fact("data.tokens") == 12080465
    assert run.setting("optimizer.lr") == 0.003
    assert run.column("step") == list(range(1, 501))
    assert {len(column) for column in run.metrics.values()} == {500}
    blank = [math.isnan(value) for value in run.column("val_loss")]
    assert blank.count(False) == len(run.evals) == 10
    assert not blank[49]
    assert run.evals[-1]["loss"] == run.column("val_loss")[-1] == run.fact("results.val_loss")
    assert len(run.stage_records) == 2 * (8 + 3 * 10 + 1)
    assert run.checkpoint_step == 500
    assert run.damage == []


def test_an_empty_folder_reads_as_empty(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert (run.status, run.run, run.config, run.metrics, run.evals, run.stage_records) == (
        {},
        {},
        {},
        {},
        [],
        [],
    )
    assert run.column("train_loss") == []
    assert run.fact("data.tokens") is None
    assert run.checkpoint_step is None
    assert run.damage == []


def test_a_row_cut_at_any_byte_is_left_out(small_run: Any) -> None:
    whole = RunFolder(small_run.path).metrics
    path = small_run.path / "metrics.csv"
    content = path.read_bytes()
    for cut in range(len(content) - 300, len(content)):
        path.write_bytes(content[:cut])
        run = RunFolder(small_run.path)
        rows = content[:cut].count(b"\n") - 1
        for name, column in run.metrics.items():
            assert len(column) == rows
            assert repr(column) == repr(whole[name][:rows])
        assert len(run.damage) == (not content[:cut].endswith(b"\n"))


@pytest.mark.parametrize(("name", "file"), [("evals", "evals"), ("stage_records", "memory")])
def test_a_record_cut_at_any_byte_is_left_out(small_run: Any, name: str, file: str) -> None:
    whole = getattr(RunFolder(small_run.path), name)
    path = small_run.path / f"{file}.jsonl"
    content = path.read_bytes()
    for cut in range(len(content) - 150, len(content) - 1):
        path.write_bytes(content[:cut])
        run = RunFolder(small_run.path)
        assert getattr(run, name) == whole[:-1]
        assert len(run.damage) == 1


def test_a_line_that_a_full_disk_cut_does_not_take_the_next_with_it(done_run: Any, golden: Golden) -> None:
    path = done_run.path / "memory.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3][:40], *lines[4:]]) + "\n")
    run = RunFolder(done_run.path)
    assert len(run.stage_records) == len(lines) - 1
    golden.text("\n".join(run.damage))


def test_a_line_ends_only_at_its_end(small_run: Any) -> None:
    records = RunFolder(small_run.path).stage_records
    odd = records[0] | {"facts": {"path": "a\u2028b\x85c"}}
    with open(small_run.path / "memory.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(odd, ensure_ascii=False) + "\n")
    assert RunFolder(small_run.path).stage_records == [*records, odd]


def test_what_is_not_known_is_ignored_and_what_is_missing_is_missed(new_run: Callable[..., Any]) -> None:
    made = new_run()
    (made.path / "metrics.csv").write_text("step,loss_of_another_version,tokens\n1,0.5,10\n2,,20\n")
    run = RunFolder(made.path)
    assert run.column("tokens") == [10.0, 20.0]
    assert run.column("train_loss") == []
    assert run_page(run, [], Terminal())


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null", b"[" * 100_000])
def test_a_json_file_that_is_damaged_is_told(done_run: Any, content: bytes, golden: Golden) -> None:
    (done_run.path / "run.json").write_bytes(content)
    run = RunFolder(done_run.path)
    assert run.run == {}
    assert len(run.damage) == 1
    if content == b"{":
        golden.text(run.damage[0])
    assert run.damage[0] in run_page(run, [], Terminal())


def test_the_newest_attempt_is_the_one_that_counts(done_run: Any) -> None:
    done_run.memory(attempt=2, cycles=1)
    newest = RunFolder(done_run.path).last_stage_records
    assert {record["attempt"] for record in newest} == {2}
    assert len(newest) == 2 * (8 + 3 + 1)


def test_reading_and_rendering_load_nothing_heavy(done_run: Any, root: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from analysis.summary import run_page\n"
        "from analysis.terminal import Terminal\n"
        "from experiment_utils.run_folder import RunFolder\n"
        "run_page(RunFolder(pathlib.Path(sys.argv[1])), [], Terminal())\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'numpy', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(done_run.path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
