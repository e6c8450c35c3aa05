"""Runs under their supervisor: their files, the states that these give, and runs without one."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from supervised import wait_for
from tiny_run import ROOT, make_run, tiny_config

from conf.schema import Memory
from memory.record.ring import read_ring
from slurm.launch.outcome import outcome_of
from slurm.launch.processes import Children, run_command
from slurm.launch.work_through import run_one
from training.attempt.run_files import read_status

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("quick_start"),
]


def test_command_of_a_run(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path))
    core = [sys.executable, str(ROOT / "core.py"), str(folder)]
    for facts, attempt in (("", "1"), (json.dumps({"attempts": [{}, {}]}), "3"), ("{", "1")):
        if facts:
            (folder / "run.json").write_text(facts)
        command = run_command(folder, quiet=True)
        assert command[:3] == [sys.executable, "-I", "-S"]
        assert command[command.index("--") + 1 :] == [*core, "--quiet"]
        assert command[command.index("--attempt") + 1] == attempt
    make_run(dataclasses.replace(tiny_config(tmp_path), memory=Memory(supervise=False)))
    assert run_command(folder, quiet=False)[:4] == [*core, "--parent"]
    make_run(tiny_config(tmp_path))
    (folder / "status.json").write_text('{"state": "done"}')
    assert run_command(folder, quiet=False)[:4] == [*core, "--parent"], "nothing will happen there"


@pytest.mark.slow
def test_a_run_leaves_its_outcome_and_its_ring(tmp_path: Path) -> None:
    outcome = run_one(tiny_config(tmp_path, max_steps=4), quiet=True)
    assert (outcome.state, outcome.exit_code) == ("done", 0)
    noted = json.loads((outcome.folder / "outcome.json").read_text())
    assert (noted["exit_code"], noted["by"], noted["attempt"]) == (0, "exit", 1)
    status = read_status(outcome.folder)
    ring = read_ring(outcome.folder / "memory.ring")
    assert ring is not None
    assert ring.samples[-1].tree[0].pid == status["pid"] == noted["pid"]
    assert not list(outcome.folder.glob(".memory.stacks*"))
    page = (ROOT / "docs" / "run-folder.md").read_text()
    names = [path.name for path in outcome.folder.iterdir() if path.is_file()]
    assert [name for name in (*names, *noted) if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_stacks_and_watch_of_a_run(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=100_000, evals=1)
    folder = make_run(dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, repeat=True)))

    def watched() -> dict[str, Any] | None:
        seen = memory("watch", str(folder), "--once")
        return seen if seen["stage"] else None  # None between two stages

    with Children() as children:
        child = children.start(run_command(folder, quiet=True), quiet=True)
        wait_for(lambda: read_status(folder).get("stage") == "train")
        (first, *_) = memory("stacks", str(folder))["processes"]
        seen = wait_for(watched, "it is in no stage")
        child.process.send_signal(signal.SIGTERM)
        children.wait()
    assert first["pid"] == read_status(folder)["pid"]
    assert "core.py" in first["stacks"]
    assert seen["stage"].split()[0] in ("train", "evaluate", "checkpoint")
    noted = json.loads((folder / "outcome.json").read_text())
    assert (noted["exit_code"], [one["signal"] for one in noted["signals_passed_on"]]) == (1, ["SIGTERM"])


def memory(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "memory", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


OUTCOME = {
    "supervisor_pid": 4, "counters_before": {"oom_kill": 3}, "counters_after": {"oom_kill": 4},
    "peak_unreclaimable_bytes": 198 << 20, "limit_bytes": 200 << 20,
}  # fmt: skip
MAIN, OTHER = {"victim": {"is_main": True}}, {"victim": {"is_main": False}}
HELD = "for memory: 198 MB of 200 MB when last seen. Why: python -m memory "
NO_ROOM = "error: cannot write the run folder: No space left on device. Make room"
WRITES = {"exit_code": 2, "signal": None, "counters_after": None}


@pytest.mark.parametrize(
    ("noted", "log", "state", "reason"),
    [
        (MAIN, "", "oom", f"the kernel killed the main process {HELD}"),
        (OTHER, "", "oom", f"the kernel killed another process than the main one {HELD}"),
        ({"victim": None, "counters_after": {"oom_kill": 3}}, "", "failed", "killed by SIGKILL"),
        ({"supervisor_pid": 5, **MAIN}, "", "failed", "its supervisor was killed by SIGKILL"),
        ({"counters_after": None, "counters_before": None}, "", "failed", "killed by SIGKILL"),
        (WRITES, f"2026-11-24 17:54:30 {NO_ROOM}\n", "failed", NO_ROOM),
        (WRITES, "", "failed", "its process ended without writing why, in stage evaluate"),
    ],
)  # fmt: skip
def test_state_of_a_run_that_did_not_say_why_it_ended(
    tmp_path: Path, noted: dict[str, Any], log: str, state: str, reason: str
) -> None:
    """By its supervisor; without one that ended with it by its exit; by its log if its disk was full."""
    (tmp_path / "outcome.json").write_text(json.dumps(OUTCOME | noted))
    code, killed_by = noted.get("exit_code", 1), noted.get("signal", "SIGKILL")
    if code == 2:
        (tmp_path / "status.json").write_text(json.dumps({"state": "running", "stage": "evaluate"}))
        (tmp_path / "log.txt").write_text(log)
    process = SimpleNamespace(pid=4)
    child: Any = SimpleNamespace(
        exit_code=code, killed_by=killed_by, seconds=1.0, process=process, last_error=lambda: None
    )
    found = outcome_of(tmp_path, child, {})
    assert found.state == state
    assert str(found.reason).startswith(reason)
    assert ("Why:" in str(found.reason)) == ("Why:" in reason)


def test_status_of_an_earlier_attempt_is_not_of_a_later_one(tmp_path: Path) -> None:
    before = {"state": "failed", "reason": "diverged"}
    (tmp_path / "status.json").write_text(json.dumps(before))
    child: Any = SimpleNamespace(
        exit_code=1, killed_by=None, seconds=1.0, process=SimpleNamespace(pid=4), last_error=lambda: "damaged"
    )
    found = [outcome_of(tmp_path, child, status) for status in (before, {})]
    assert [(one.state, one.reason) for one in found] == [
        ("never_started", "damaged"),
        ("failed", "diverged"),
    ]
