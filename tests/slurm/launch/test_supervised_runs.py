"""Runs of this harness under their supervisor: what it leaves, what is told of it, and how to go without."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from supervised import wait_for
from tiny_run import ROOT, make_run, tiny_config

from conf.schema import Memory
from memory.record.ring import read_ring
from slurm.launch.local_runs import outcome_of, run_one
from slurm.launch.processes import Children, run_command
from training.attempt.run_files import read_status

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("quick_start"),
]


def test_the_command(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path))
    command = run_command(folder, quiet=True)
    assert command[:3] == [sys.executable, "-I", "-S"]
    assert command[command.index("--") + 1 :] == [
        sys.executable,
        str(ROOT / "core.py"),
        str(folder),
        "--quiet",
    ]
    assert command[command.index("--attempt") + 1] == "1"
    (folder / "run.json").write_text(json.dumps({"attempts": [{}, {}]}))
    assert run_command(folder, quiet=True)[command.index("--attempt") + 1] == "3"
    (folder / "run.json").write_text("{")
    assert run_command(folder, quiet=True)[command.index("--attempt") + 1] == "1", (
        "the run says what is wrong"
    )


def test_without_a_supervisor(tmp_path: Path) -> None:
    config = dataclasses.replace(tiny_config(tmp_path), memory=Memory(supervise=False))
    folder = make_run(config)
    plain = run_command(folder, quiet=False)
    assert plain[:3] == [sys.executable, str(ROOT / "core.py"), str(folder)]
    assert plain[3] == "--parent"
    with_one = make_run(tiny_config(tmp_path))
    assert with_one == folder, "it does not change what is computed"
    (folder / "status.json").write_text('{"state": "done"}')
    assert run_command(folder, quiet=False)[1] == str(ROOT / "core.py"), "nothing will happen there"


@pytest.mark.slow
def test_a_run_leaves_its_outcome_and_its_ring(tmp_path: Path) -> None:
    outcome = run_one(tiny_config(tmp_path, max_steps=4), quiet=True)
    assert (outcome.state, outcome.exit_code) == ("done", 0)
    told = json.loads((outcome.folder / "outcome.json").read_text())
    assert (told["exit_code"], told["by"], told["attempt"]) == (0, "exit", 1)
    status = read_status(outcome.folder)
    assert told["pid"] == status["pid"]
    ring = read_ring(outcome.folder / "memory.ring")
    assert ring is not None
    assert ring.samples[-1].tree[0].pid == status["pid"]
    assert not list(outcome.folder.glob(".memory.stacks*"))
    page = (ROOT / "docs" / "run-folder.md").read_text()
    names = [path.name for path in outcome.folder.iterdir() if path.is_file()]
    assert [name for name in (*names, *told) if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_stacks_and_watch_of_a_run(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=100_000, evals=1)
    folder = make_run(dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, repeat=True)))
    with Children() as children:
        child = children.start(run_command(folder, quiet=True), quiet=True)
        wait_for(lambda: read_status(folder).get("stage") == "train")
        stacks = memory("stacks", str(folder), "--json")
        seen = wait_for(_in_a_stage(folder), "it is in no stage")
        child.process.send_signal(signal.SIGTERM)
        children.wait()
    first = json.loads(stacks)["processes"][0]
    assert first["pid"] == read_status(folder)["pid"]
    assert "core.py" in first["stacks"]
    assert seen["stage"].split()[0] in ("train", "evaluate", "checkpoint"), "whichever it was in just then"
    told = json.loads((folder / "outcome.json").read_text())
    assert (told["exit_code"], [one["signal"] for one in told["signals_passed_on"]]) == (1, ["SIGTERM"])


def _in_a_stage(folder: Path) -> Callable[[], dict[str, Any] | None]:
    """What watch shows of the run, where it did not look between two stages."""

    def look() -> dict[str, Any] | None:
        seen: dict[str, Any] = json.loads(memory("watch", str(folder), "--once", "--json"))
        return seen if seen["stage"] else None

    return look


def memory(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memory", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("told", "state", "reason"),
    [
        (
            {"victim": {"is_main": True}},
            "oom",
            "the kernel killed the main process for memory: 198 MB of 200 MB when last seen. Why:",
        ),
        (
            {"victim": {"is_main": False}},
            "oom",
            "the kernel killed another process than the main one for memory: 198 MB of 200 MB when last "
            "seen. Why: python -m memory ",
        ),
        ({"victim": None, "counters_after": {"oom_kill": 3}}, "failed", "killed by SIGKILL"),
        (
            {"supervisor_pid": 5, "victim": {"is_main": True}},
            "failed",
            "its supervisor was killed by SIGKILL",
        ),
        ({"counters_after": None, "counters_before": None}, "failed", "killed by SIGKILL"),
    ],
)
def test_what_the_supervisor_saw_is_told(
    tmp_path: Path, told: dict[str, Any], state: str, reason: str
) -> None:
    outcome = {
        "supervisor_pid": 4, "counters_before": {"oom_kill": 3}, "counters_after": {"oom_kill": 4},
        "peak_unreclaimable_bytes": 198 << 20, "limit_bytes": 200 << 20,
    }  # fmt: skip
    (tmp_path / "outcome.json").write_text(json.dumps(outcome | told))
    child: Any = SimpleNamespace(
        exit_code=1, killed_by="SIGKILL", seconds=1.0, process=SimpleNamespace(pid=4), last_error=lambda: None
    )
    found = outcome_of(tmp_path, child, {})
    assert found.state == state
    assert str(found.reason).startswith(reason)
    assert ("Why:" in str(found.reason)) == ("Why:" in reason)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "2026-11-24 17:54:30 error: cannot write the run folder: No space left on device. Make room\n",
            "error: cannot write the run folder: No space left on device. Make room",
        ),
        ("", "its process ended without writing why, in stage evaluate and with exit code 2"),
    ],
)
def test_a_run_that_could_not_write_its_last_status(tmp_path: Path, log: str, reason: str) -> None:
    """Its disk was full. In a job its stderr is the job's, and its log alone tells."""
    (tmp_path / "status.json").write_text(json.dumps({"state": "running", "stage": "evaluate"}))
    (tmp_path / "outcome.json").write_text(json.dumps({"supervisor_pid": 4, "exit_code": 2, "signal": None}))
    (tmp_path / "log.txt").write_text(log)
    child: Any = SimpleNamespace(
        exit_code=2, killed_by=None, seconds=1.0, process=SimpleNamespace(pid=4), last_error=lambda: None
    )
    found = outcome_of(tmp_path, child, {})
    assert (found.state, found.reason) == ("failed", reason)
