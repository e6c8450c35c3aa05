"""`python -m analysis memory`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_sweeps import killed_for_memory, make_sweep, write

from analysis.__main__ import main
from memory.record.ring import RingWriter
from memory.record.samples import Sample
from tests.golden_text import Golden

GB = 1 << 30


@pytest.fixture
def study(new_run: Callable[..., Any]) -> Path:
    """Two runs of one size under a job's limit, one of another under the host's, one that is queued."""
    for name, batch, peak, limit_at in (
        ("a", 4096, 3.0, "/job_1"), ("b", 4096, 2.5, "/job_1"), ("c", 8192, 5.0, "host")
    ):  # fmt: skip
        made = new_run(name)
        made.config()
        made.status()
        made.run(identity=name * 64, batch_tokens=batch, memory={"host_bytes": int(2.8 * GB)})
        told = {"peak_unreclaimable_bytes": int(peak * GB), "limit_bytes": 16 * GB, "limit_at": limit_at}
        made.write("outcome.json", told)
        made.memory(cycles=1, limit_mb=16 << 10)
    queued = new_run("q")
    queued.config()
    return Path(queued.path.parent)


def test_each_size_with_its_peak_and_what_it_left(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(study), "--json", "--where", "state=done"]) == 0
    small, large = json.loads(capsys.readouterr().out)["sizes"]
    assert small["runs"] == ["a", "b"]
    assert (small["peak_bytes"], small["least_peak_bytes"]) == (3 * GB, int(2.5 * GB))
    assert (small["limit_bytes"], small["unused_bytes"]) == (16 * GB, 13 * GB)
    assert small["estimate_bytes"] == int(2.8 * GB)
    assert small["ask_bytes"] == 14 * (256 << 20)  # 3.45 GB, up to the next 256 MB
    assert small["stages"][0]["highest_bytes"] >= small["stages"][1]["highest_bytes"] > 0
    assert (large["peak_bytes"], large["limit_bytes"], large["unused_bytes"]) == (5 * GB, None, None)


def test_what_others_held_is_not_asked_for(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs side by side on one machine see the memory of all of them; a job has its own."""
    for name in ("b", "c"):
        told = json.loads((study / name / "outcome.json").read_text())
        (study / name / "outcome.json").write_text(json.dumps(told | {"peak_own_bytes": GB}))
        made = json.loads((study / name / "run.json").read_text())
        made["memory"]["host_parts"] = {"experiments.py": 64 << 20}
        (study / name / "run.json").write_text(json.dumps(made))
    assert main(["memory", str(study), "--json", "--where", "state=done"]) == 0
    alone, in_a_job = json.loads(capsys.readouterr().out)["sizes"]
    assert in_a_job["least_peak_bytes"] == int(2.5 * GB)
    assert (alone["peak_bytes"], alone["ask_bytes"]) == (GB + (64 << 20), 5 * (256 << 20))
    assert alone["stages"][0]["highest_bytes"] is None
    assert main(["memory", str(study), "--where", "run=c"]) == 0
    assert " MB" not in capsys.readouterr().out.splitlines()[1].rpartition("  ")[2]


def test_the_page(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(study)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:4] == ["size", "runs", "needs", "estimate"]
    assert any("3.0 GB" in row and "13.0 GB" in row for row in rows), rows


@pytest.mark.parametrize(("limit_at", "limit"), [("host", None), ("/job_1", 16 * GB)])
def test_memory_of_the_host_is_no_limit_of_a_run_that_goes_on_either(
    study: Path, limit_at: str, limit: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study / "c"
    (folder / "outcome.json").unlink()
    (folder / "status.json").write_text('{"version": 1, "state": "running", "stage": "train"}')
    records = [json.loads(line) for line in (folder / "memory.jsonl").read_text().splitlines()]
    for record in records:
        record["snapshot"]["limit_at"] = limit_at
    (folder / "memory.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with RingWriter(folder / "memory.ring", {"pid": 100}) as ring:
        ring.add(Sample(time.time(), 2 * GB, 16 * GB))
    assert main(["memory", str(study), "--json", "--where", "run=c"]) == 0
    (size,) = json.loads(capsys.readouterr().out)["sizes"]
    assert (size["peak_bytes"], size["limit_bytes"]) == (2 * GB, limit)


def test_two_batches_of_a_model_are_two_rows_by_name(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(study), "--where", "state=done"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(", ")[1].split()[0] for row in rows[1:]] == ["4,096", "8,192"]


def test_nothing_to_tell_exits_2(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["memory", str(study / "q")]) == 2
    golden.text(capsys.readouterr().err)
    (tmp_path / "a.csv").write_text("step,loss\n1,2\n")
    assert main(["memory", str(tmp_path / "a.csv")]) == 2
    golden.text(capsys.readouterr().err)


def test_runs_that_have_not_begun_are_no_size_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned, queued = make_sweep(tmp_path / "s", (32,), (0.01, 0.02))
    told = json.loads((planned / "run.json").read_text())
    write(planned, "run.json", told | {"batch_tokens": 4096})
    (queued / "outcome.json").unlink()
    write(queued, "status.json", {"version": 1, "state": "queued"})
    assert main(["memory", str(tmp_path / "s"), "--json"]) == 0
    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert [(size["model"], len(size["runs"])) for size in sizes] == [("32d", 2)]


def test_what_a_killed_run_had_is_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in make_sweep(tmp_path / "s", (32,), (0.01, 0.02)):
        killed_for_memory(folder)
    assert main(["memory", str(tmp_path / "s"), "--json"]) == 0
    size = json.loads(capsys.readouterr().out)["sizes"][0]
    assert size["ask_is_too_little"]
    assert main(["memory", str(tmp_path / "s")]) == 0
    assert "> 1.2 GB" in capsys.readouterr().out
