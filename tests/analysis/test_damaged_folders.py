"""The page of a run comes, whatever bytes its files hold: it ends every run, and must not be what fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.plots import loss_figure, memory_figure
from analysis.summary import run_page
from analysis.sweep import sweep_page, sweep_row
from analysis.terminal import Terminal
from experiment_utils.run_folder import RunFolder
from tests.searched import examples

FILES = ["status.json", "run.json", "config.yaml", "metrics.csv", "evals.jsonl", "memory.jsonl"]


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_any_bytes_overwritten(small_run: Any, name: str, data: st.DataObject) -> None:
    whole = (small_run.path / name).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    junk = data.draw(
        st.binary(max_size=8) | st.sampled_from([b"null", b"{}", b"[]", b'"x"', b"-1", b"NaN", b"1e999"])
    )
    try:
        (small_run.path / name).write_bytes(whole[:at] + junk + whole[at + len(junk) :])
        page = run_page(RunFolder(small_run.path), [], Terminal())
        assert small_run.path.name in page
        sweep_page([sweep_row(RunFolder(small_run.path))], Terminal())
    finally:
        (small_run.path / name).write_bytes(whole)


@pytest.mark.parametrize("key", [
    "results", "data", "attempts", "auto", "parameters", "steps", "tokens", "vocab_size", "effective_batch",
])  # fmt: skip
def test_any_fact_of_another_kind(small_run: Any, key: str) -> None:
    for value in (None, "x", [], {}, -1, float("nan")):
        small_run.run(**{key: value})
        run = RunFolder(small_run.path)
        page = run_page(run, [], Terminal())
        assert " MB" in page
        assert "nan" not in page
        sweep_page([sweep_row(run)], Terminal())


@pytest.mark.parametrize("key", ["event", "stage", "attempt", "elapsed_s", "snapshot", "depth", "seconds",
                                 "change", "error", "thread", "facts"])  # fmt: skip
def test_stage_records_of_another_kind(small_run: Any, key: str) -> None:
    lines = (small_run.path / "memory.jsonl").read_text().splitlines(keepends=True)
    at = len(lines) // 2 - 3
    for value in (None, "x", [], {}, {"anon_bytes": {}}, -1, float("nan")):
        lines[at] = json.dumps(json.loads(lines[at]) | {key: value}) + "\n"
        at += 1
    (small_run.path / "memory.jsonl").write_text("".join(lines))
    run = RunFolder(small_run.path)
    assert " MB" in run_page(run, [], Terminal())
    memory_figure(run)


@pytest.mark.parametrize("line", ["null: 1", "1: 2", "? [a]\n: 1", "x: {null: 1}", "x: [{1.5: 2}]"])
def test_a_config_whose_key_is_no_text(small_run: Any, line: str) -> None:
    with (small_run.path / "config.yaml").open("a") as config:
        config.write(f"{line}\n")
    run = RunFolder(small_run.path)
    assert "Next" in run_page(run, [], Terminal())
    assert any("config.yaml" in said for said in run.damage)


@pytest.mark.parametrize("missing", FILES)
def test_any_file_missing(small_run: Any, tmp_path: Path, missing: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_run.path, copy)
    (copy / missing).unlink()
    run = RunFolder(copy)
    assert "Next" in run_page(run, [], Terminal())
    assert (loss_figure(run) is None) == (missing == "metrics.csv")
    assert (memory_figure(run) is None) == (missing == "memory.jsonl")
