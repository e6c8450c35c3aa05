"""`python -m slurm status`: a table, JSON, a filter, all studies, watching."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy
from slurm_command import Shown, refused, told, told_json, typed

from experiment_utils import atomic_files
from memory.record.ring import RingWriter
from memory.record.samples import ProcessSample, Sample
from slurm.__main__ import main
from slurm.states import STATES
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


@pytest.mark.parametrize("has_ended", [False, True])
def test_of_runs_side_by_side_each_has_its_own_memory(
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
    assert "316 MB/64.0 GB 0%" in told(capsys, "status", "local")


def test_the_table(study: MadeStudy, shown: Shown) -> None:
    lines = shown("status", "sweep").splitlines()
    header, *rows = lines[2:7]
    assert header.split() == ["run", "state", "step", "ETA", "memory", "tokens/s", "attempt", "job", "reason"]
    assert rows[1].split("  ")[0] == "32d-b"
    for part in ("400/1,000 40%", "5 min", "800 MB/1.0 GB 78%", "200", "4242_1", "on n1"):
        assert part in rows[1], rows[1]
    assert "1.0 GB/1.0 GB 100%" in rows[2]


def test_json_uses_the_words_of_the_list(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "status", "sweep")
    assert (found["version"], found["study"], found["counts"]) == (
        1,
        "sweep",
        {"done": 1, "running": 1, "queued": 1, "oom": 1},
    )
    assert [one["state"] for one in found["runs"]] == ["done", "running", "oom", "queued"]
    assert {one["state"] for one in found["runs"]} <= set(STATES)
    running = found["runs"][1]
    assert (running["step"], running["total_steps"], running["share"], running["eta_s"]) == (
        400,
        1000,
        0.4,
        300.0,
    )
    assert (running["peak_bytes"], running["limit_bytes"]) == (800 << 20, 1 << 30)
    assert (running["tokens_per_s"], running["job"], running["launcher"]) == (200.0, "4242_1", "slurm")


def test_a_filter(study: MadeStudy, capsys: pytest.CaptureFixture[str], shown: Shown) -> None:
    found = told_json(capsys, "status", "sweep", "--state", "oom, queued")
    assert [one["run"] for one in found["runs"]] == ["32d-c", "32d-d"]
    assert found["counts"]["done"] == 1
    shown("status", "sweep", "--state", "stalled")


def test_one_run_alone(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "status", "runs/sweep/32d-b")
    assert [one["run"] for one in found["runs"]] == ["32d-b"]


def test_all_studies(
    study: MadeStudy, said: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], shown: Shown
) -> None:
    old = MadeStudy(place / "runs" / "old", ["x"])
    old.status("x", "done")
    os.utime(old.folder, (1, 1))
    os.utime(old.folder / ".submissions", (1, 1))
    said.calls.clear()
    lines = shown("status").splitlines()
    assert sorted(said.calls) == ["sacct", "squeue"]
    assert [one["study"] for one in told_json(capsys, "status")["studies"]] == ["sweep", "old"]
    assert main([]) == 0, "without a command"
    assert capsys.readouterr().out.splitlines() == lines


def test_nothing_there_yet(place: Path, shown: Shown) -> None:
    shown("status")


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["sweep", "--state", "dead"], ["--state", "oom"], ["sweep", "--interval", "0"]]
)
def test_bad_input(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], arguments: list[str], golden: Golden
) -> None:
    golden.text(refused(capsys, "status", *arguments))


def test_slurm_that_does_not_answer_is_noted(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    said.queue = said.accounting = None
    shown("status", "sweep")


def test_watching_ends_with_the_last_run(
    study: MadeStudy,
    said: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    def later(seconds: float) -> None:
        assert seconds == 10
        said.queue = []
        study.status("32d-b", "done")
        study.status("32d-d", "failed", reason="ValueError: no")

    monkeypatch.setattr(time, "sleep", later)
    assert typed("status", "sweep", "--watch") == 0
    looks = [line for line in capsys.readouterr().out.splitlines() if "sweep: " in line]
    assert len(looks) == 2
    golden.text("\n".join(look.partition("sweep: ")[2] for look in looks))


@pytest.mark.parametrize("looked", [("status", "sweep", "--watch"), ("logs", "runs/sweep/32d-b", "-f")])
def test_ctrl_c_ends_the_looking_with_130(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch, looked: tuple[str, ...]
) -> None:
    def pressed(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pressed)
    assert typed(*looked) == 130


def test_a_wide_reason_is_cut_to_the_terminal(study: MadeStudy) -> None:
    from slurm.status import study_states
    from slurm.status.status_table import table

    lines = table(study_states(study.folder), 130)
    assert max(map(len, lines)) <= 130
    assert lines[3].endswith("...")


def test_the_report_of_the_study_has_the_same_words(
    study: MadeStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    """`then=analysis`, and the table that ends a sweep that was waited for."""
    from analysis.__main__ import main

    said = told_json(capsys, "status", "sweep")["runs"]
    assert main([str(study.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    words = {one["run"]: (one["state"], one["reason"]) for one in found}
    assert words == {
        one["run"]: (one["state"], None if one["state"] == "done" else one["reason"]) for one in said
    }


def test_runs_of_other_code_are_marked(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    def made_by(run: str, code: dict[str, object]) -> None:
        atomic_files.write_json(study.folder / run / "run.json", {"attempts": [{"code": code}]})

    made_by("32d-a", {"hash": "a" * 16, "commit": "1" * 40, "dirty": False})
    assert "code" not in told(capsys, "status", "sweep").splitlines()[2].split()
    made_by("32d-b", {"hash": "b" * 16})
    made_by("32d-c", {"commit": "1" * 40, "dirty": False})
    lines = told(capsys, "status", "sweep").splitlines()
    golden.text(lines[1], numbers=False)
    rows = [line for line in lines if line.startswith("32d-")]
    places = ("aaaaaaa@1111111", "bbbbbbb ", "unknown ")
    assert [place in row for place, row in zip(places, rows, strict=False)] == [True] * 3
    plain = told_json(capsys, "status", "sweep")
    assert [run["code"] for run in plain["runs"]] == ["aaaaaaa@1111111", "bbbbbbb", None, None]
    assert [one["runs"] for one in plain["code"]] == [["32d-a"], ["32d-b"], ["32d-c"]]
    (of_all,) = told(capsys, "status").splitlines()[:1]
    golden.text(of_all, numbers=False)
