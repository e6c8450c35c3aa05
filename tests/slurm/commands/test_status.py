"""`python -m slurm status`: a table that fits the terminal, JSON, a filter, all studies."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy
from slurm_command import Shown, printed, printed_json, refused

from experiment_utils import atomic_files
from memory.record.ring import RingWriter
from memory.record.samples import ProcessSample, Sample
from slurm.__main__ import main
from slurm.commands.status_table import COLUMNS, table
from slurm.status import study_states
from tests.golden_text import Golden

HEADER = "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    made = MadeStudy(place / "runs" / "sweep", ["32d-a", "32d-b", "32d-c", "32d-d"])
    made.status("32d-a", "done", step=1000)
    made.status("32d-b", "running")
    made.lock("32d-b")
    rows = [f"{n},{n * 100},3.0,,0.1,1.0,1e9,{n * 0.5},200,\n" for n in range(300, 401)]
    (made.folder / "32d-b" / "metrics.csv").write_text(HEADER + "".join(rows) + "401,40100,3.")
    with RingWriter(made.folder / "32d-b" / "memory.ring", {"pid": 100}) as ring:
        for at, u in enumerate((300, 800, 500)):
            ring.add(Sample(NOW_S - 60 + 20 * at, u << 20, 1 << 30))
    made.status("32d-c", "running", age_s=70)
    made.killed_for_memory("32d-c")
    said.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 300)), nodes="n1")
    said.wait("4242_3", reason="QOSMaxGRESPerUser")
    said.row("4242_2", "FAILED", "1:0")
    return made


def test_table(study: MadeStudy, shown: Shown) -> None:
    header, *rows = shown("status", "sweep").splitlines()[2:7]
    assert header.split() == [name for name in COLUMNS if name not in ("code", "GPU")]
    for part in ("400/1,000 40%", "5 min", "800 MB/1.0 GB 78%", "200", "4242_1", "on n1"):
        assert part in rows[1], rows[1]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_table_fits_a_terminal(study: MadeStudy, columns: int) -> None:
    """States, progress and reasons go last; the identity, at the end of a name, stays."""
    entries = study_states(study.folder)
    long = [
        replace(entry, folder=study.folder / f"{'x' * 40}-{n}1a2b3c4", state="never_started")
        for n, entry in enumerate(entries)
    ]
    for shown in (entries, long, [replace(entry, reason=None) for entry in long]):
        header, *rows = lines = table(shown, columns)
        assert max(map(len, lines)) <= columns
        assert header.split()[:3] == ["run", "state", "step"]
        assert all(
            entry.name[-8:] in row and entry.state in row for row, entry in zip(rows, shown, strict=True)
        )
        assert ("reason" in header) == any(entry.reason for entry in shown)


@pytest.mark.parametrize("has_ended", [False, True])
def test_memory_of_runs_in_parallel_is_each_ones_own(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], has_ended: bool
) -> None:
    """On a machine without a job's limit U is that of all of them."""
    made = MadeStudy(place / "runs" / "local", ["32d-a"])
    made.status("32d-a", "running", step=400, total_steps=1000, age_s=5)
    with RingWriter(made.folder / "32d-a" / "memory.ring", {"pid": 100, "limit_at": "host"}) as ring:
        for u, own in ((900, 100), (2000, 300), (2500, 200)):
            process = ProcessSample(100, "python", own << 20, shmem_bytes=16 << 20)
            of_all = Sample(NOW_S - 60 + u / 100, u << 20, 64 << 30)
            ring.add(replace(of_all, tree_anon_bytes=own << 20, tree=(process,)))
    if has_ended:
        made.outcome(
            "32d-a", peak_unreclaimable_bytes=2500 << 20, limit_bytes=64 << 30, limit_at="host",
            peak_own_bytes=316 << 20,
        )  # fmt: skip
    assert "316 MB/64.0 GB 0%" in printed(capsys, "status", "local")


def test_gpu_of_a_run_that_works_and_of_one_that_is_done(study: MadeStudy, shown: Shown) -> None:
    sample = Sample(NOW_S, 500 << 20, 1 << 30, gpu_used_bytes=1, gpu_total_bytes=2)
    with RingWriter(study.folder / "32d-b" / "memory.ring", {"pid": 100}) as ring:
        ring.add(replace(sample, gpu_busy_percent=97, gpu_power_mw=310400))
    study.outcome("32d-a", exit_code=0, signal=None, gpu={"busy_percent": 41.2, "power_w": None})
    header, *rows = table(study_states(study.folder))
    at = header.index("GPU") + len("GPU")
    assert [row[:at].split("  ")[-1].strip() for row in rows[:2]] == ["41%", "97% 310 W"]


def test_efficiency_of_the_runs_that_are_done(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "SLURM_JOB_ID": "4242", "SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_START_TIME": str(int(NOW_S) - 1260), "SLURM_JOB_END_TIME": str(int(NOW_S) + 5940),
    }  # fmt: skip
    study.outcome(
        "32d-a", exit_code=0, signal=None, attempt=1, started_s=NOW_S - 1200, ended_s=NOW_S - 60,
        environment=environment, peak_unreclaimable_bytes=500 << 20, limit_at="/job_4242", cpu_s=1140,
    )  # fmt: skip
    line = "asked 4.0 GB, used 500 MB; 2 cores at 50%; 20 min of 2 h; next: slurm.mem=768M slurm.time=40"
    for command in (("status", "sweep"), ("status", "runs/sweep/32d-a"), ("why", "runs/sweep/32d-a")):
        told = [one.strip() for one in printed(capsys, *command).splitlines()]
        assert [one for one in told if one.startswith("efficiency: ")] == [f"efficiency: {line}"], command
    assert "efficiency: " not in printed(capsys, "status", "runs/sweep/32d-c")
    (found, *_) = printed_json(capsys, "status", "sweep")["runs"]
    assert found["efficiency"]["used_bytes"] == 500 << 20


def test_json(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_json(capsys, "status", "sweep")
    assert (found["version"], found["study"]) == (1, "sweep")
    assert found["counts"] == {"done": 1, "running": 1, "queued": 1, "oom": 1}
    assert [one["state"] for one in found["runs"]] == ["done", "running", "oom", "queued"]
    expected = {
        "step": 400, "total_steps": 1000, "share": 0.4, "eta_s": 300.0, "peak_bytes": 800 << 20,
        "limit_bytes": 1 << 30, "tokens_per_s": 200.0, "job": "4242_1", "launcher": "slurm",
    }  # fmt: skip
    assert found["runs"][1] | expected == found["runs"][1]
    only = printed_json(capsys, "status", "sweep", "--state", "oom, queued")
    assert [one["run"] for one in only["runs"]] == ["32d-c", "32d-d"]
    assert only["counts"] == found["counts"]
    (one,) = printed_json(capsys, "status", "runs/sweep/32d-b")["runs"]
    assert one["run"] == "32d-b"


def test_all_studies(
    study: MadeStudy, said: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], shown: Shown
) -> None:
    """The newest first, with one squeue and one sacct."""
    old = MadeStudy(place / "runs" / "old", ["x"])
    old.status("x", "done")
    os.utime(old.folder, (1, 1))
    os.utime(old.folder / ".submissions", (1, 1))
    said.calls.clear()
    lines = shown("status").splitlines()
    assert sorted(said.calls) == ["sacct", "squeue"]
    assert [one["study"] for one in printed_json(capsys, "status")["studies"]] == ["sweep", "old"]
    assert main([]) == 0, "without a command"
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("state", "step"), [("done", "analysis s"), ("running", "slurm watch s"), ("queued", "slurm watch s")]
)
def test_next_command_after_success_is_the_analysis(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], state: str, step: str
) -> None:
    study = MadeStudy(place / "runs" / "s", ["x"])
    said.wait("4242", "RUNNING" if state == "running" else "PENDING", "None", nodes="n1")
    if state != "queued":
        study.status("x", state)
    assert f"python -m {step} " in printed(capsys, "status", "s").splitlines()[-1]


def test_nothing_there_yet(place: Path, shown: Shown) -> None:
    shown("status")


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["sweep", "--state", "dead"], ["--state", "oom"], ["sweep", "--watch"]]
)
def test_bad_input(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], arguments: list[str], golden: Golden
) -> None:
    golden.text(refused(capsys, "status", *arguments))


def test_slurm_that_does_not_answer_is_noted(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    said.queue = said.accounting = None
    shown("status", "sweep")


def test_report_of_the_study_has_the_same_states(
    study: MadeStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    from analysis.__main__ import main

    states = {one["run"]: one for one in printed_json(capsys, "status", "sweep")["runs"]}
    assert main([str(study.folder), "--json"]) == 0
    for one in json.loads(capsys.readouterr().out):
        state = states.pop(one["run"])
        reason = None if one["state"] == "done" else state["reason"]
        assert (one["state"], one["reason"]) == (state["state"], reason)
    assert not states


def test_runs_of_other_code_are_marked(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    def made_by(run: str, code: dict[str, object]) -> None:
        atomic_files.write_json(study.folder / run / "run.json", {"attempts": [{"code": code}]})

    made_by("32d-a", {"hash": "a" * 16, "commit": "1" * 40, "dirty": False})
    assert "code" not in printed(capsys, "status", "sweep").splitlines()[2].split()
    made_by("32d-b", {"hash": "b" * 16})
    made_by("32d-c", {"commit": "1" * 40, "dirty": False})
    lines = printed(capsys, "status", "sweep").splitlines()
    rows = [line for line in lines if line.startswith("32d-")]
    places = ("aaaaaaa@1111111", "bbbbbbb ", "unknown ")
    assert [place in row for place, row in zip(places, rows, strict=False)] == [True] * 3
    plain = printed_json(capsys, "status", "sweep")
    assert [run["code"] for run in plain["runs"]] == ["aaaaaaa@1111111", "bbbbbbb", None, None]
    assert [one["runs"] for one in plain["code"]] == [["32d-a"], ["32d-b"], ["32d-c"]]
    golden.text("\n".join([lines[1], printed(capsys, "status").splitlines()[0]]), numbers=False)
