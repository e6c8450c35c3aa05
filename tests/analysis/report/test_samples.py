"""The page of a study has its runs' samples of text, and what they asked for and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import make_sweep

from analysis.__main__ import main
from analysis.report.samples import _OF_A_RUN


def record(step: int, text: str, **more: Any) -> str:
    return json.dumps({"version": 1, "step": step, "tokens": step * 64, "prompt": "p1", "text": text} | more)


def page_of(study: Path) -> str:
    assert main(["report", str(study)]) == 0
    return (study / "report.html").read_text()


def test_samples_of_one_run_over_its_steps_and_the_last_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    assert "Samples" not in page_of(tmp_path / "sweep")
    lines = [record(step, f" w1 <b>{step}</b>\nw2") for step in range(5, 105, 5)]
    (folders[0] / "samples.jsonl").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + '\n{"step": 10')
    (folders[1] / "samples.jsonl").write_text(
        "\n".join(["[]", record(40, "x" * 500), json.dumps({"step": 50, "text": 3})])
    )
    page = page_of(tmp_path / "sweep")
    assert "after: p1" in page
    shown = [step for step in range(5, 105, 5) if f"w1 &lt;b&gt;{step}&lt;/b&gt; w2" in page]
    assert len(shown) <= _OF_A_RUN
    assert shown[-1] == 100
    assert "x" * 300 in page
    assert "x" * 400 not in page


def test_efficiency_of_the_runs_that_are_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = make_sweep(tmp_path / "sweep", widths=(32,))
    environment = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_PER_TASK": "2"}
    for at, folder in enumerate(folders):
        (folder / "jobs.json").write_text("{}")
        outcome = json.loads((folder / "outcome.json").read_text())
        outcome |= {
            "environment": environment, "exit_code": 0, "cpu_s": 60, "started_s": 1e9, "ended_s": 1e9 + 60,
            "peak_unreclaimable_bytes": (500 + at) << 20, "limit_at": "/job",
        }  # fmt: skip
        (folder / "outcome.json").write_text(json.dumps(outcome))
    highest = 500 + len(folders) - 1
    line = f"asked 4.0 GB, used up to {highest} MB; 2 cores at 50%; up to 1 min; next: slurm.mem=768M"
    assert line in page_of(tmp_path / "sweep")
