"""The state of a run that could still say so, and of one that could not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import JOB, killed, oom, ramp, record, write

from analysis.next_steps import after_run
from analysis.outcome import diverged, how_to_go_on, outcome_of
from analysis.summary import run_page
from analysis.terminal import Terminal
from experiment_utils import lock_file
from experiment_utils.run_folder import RunFolder
from tests.golden_text import Golden


def test_done(done_run: Any, golden: Golden) -> None:
    outcome = outcome_of(RunFolder(done_run.path))
    assert outcome.is_done
    assert (outcome.state, outcome.reason) == ("done", None)
    golden.text(outcome.steps)


def test_a_run_that_was_killed_before_its_first_status_is_not_queued(
    new_run: Callable[..., Any], golden: Golden
) -> None:
    run = new_run("a")
    run.config()
    counts = {"counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 1}}
    ended = {"version": 1, "attempt": 1, "signal": "SIGKILL", "exit_code": None, "limit_bytes": 1 << 27}
    (run.path / "outcome.json").write_text(json.dumps(ended | counts))
    outcome = outcome_of(RunFolder(run.path))
    assert outcome.state == "oom"
    golden.text(str(outcome.reason), numbers=False)


def test_a_run_without_status_is_queued(new_run: Callable[..., Any], golden: Golden) -> None:
    outcome = outcome_of(RunFolder(new_run().path))
    assert outcome.state == "queued"
    golden.text(str(outcome.reason), numbers=False)
    golden.text(outcome.steps)


def test_a_run_whose_process_is_there_is_running(new_run: Callable[..., Any]) -> None:
    made = new_run()
    made.status("running", step=7, heartbeat_s=time.time())
    with lock_file.lock(made.path / "run.lock", "it"):
        outcome = outcome_of(RunFolder(made.path))
    assert outcome.state == "running"


def test_a_run_whose_process_was_killed_has_failed(new_run: Callable[..., Any], root: Path) -> None:
    made = new_run()
    program = (
        "import os, signal, sys\nfrom experiment_utils import lock_file\n"
        "with lock_file.lock(sys.argv[1], 'it'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(made.path / "run.lock")], cwd=root)
    assert killed.returncode == -signal.SIGKILL
    assert (made.path / "run.lock").exists()
    made.status("running", step=7, stage="evaluate", heartbeat_s=time.time() - 60)
    outcome = outcome_of(RunFolder(made.path))
    assert outcome.state == "failed"
    assert "evaluate" in str(outcome.reason)


def test_a_run_that_says_running_without_a_lock_has_failed(new_run: Callable[..., Any]) -> None:
    made = new_run()
    made.status("running", heartbeat_s=time.time() - 60)
    os.utime(made.path / "status.json", (time.time() - 60,) * 2)
    assert outcome_of(RunFolder(made.path)).state == "failed"


@pytest.mark.parametrize(("silent_s", "state"), [(10, "running"), (3600, "stalled")])
def test_a_run_on_another_machine_is_told_by_its_heartbeat(
    new_run: Callable[..., Any], silent_s: float, state: str
) -> None:
    made = new_run()
    made.status("running", heartbeat_s=time.time() - silent_s)
    holder = {"host": "another", "pid": 1, "started_at": 5, "since": "noon", "job_id": "77"}
    (made.path / "run.lock").write_text(json.dumps(holder))
    os.utime(made.path / "status.json", (time.time() - silent_s,) * 2)
    assert outcome_of(RunFolder(made.path)).state == state


def test_a_run_that_ends_while_it_is_looked_at_is_done(new_run: Callable[..., Any]) -> None:
    made = new_run()
    made.status("running")
    run = RunFolder(made.path)
    assert run.status["state"] == "running"
    made.status("done")
    assert outcome_of(run).state == "done"


def test_how_to_go_on(new_run: Callable[..., Any], golden: Golden) -> None:
    made = new_run()
    made.status("cancelled", reason="interrupted (Ctrl-C)")
    made.losses(20)
    golden.text(how_to_go_on(RunFolder(made.path)))
    made.checkpoint(200)
    made.checkpoint(1200)
    (made.path / "checkpoints" / ".step-00009999.tmp").mkdir()
    golden.text(how_to_go_on(RunFolder(made.path)))


def test_a_run_that_diverged_is_not_to_be_typed_again(
    diverged_run: Any, done_run: Any, golden: Golden
) -> None:
    run = RunFolder(diverged_run.path)
    assert diverged(run)
    golden.text(how_to_go_on(run))
    assert not diverged(RunFolder(done_run.path))


def test_a_run_that_the_kernel_killed_for_memory_says_so(new_run: Callable[..., Any], golden: Golden) -> None:
    """The page that ends it: the state, what its supervisor saw between the stages, and what to ask."""
    made = new_run()
    made.status("running", step=7, stage="train", heartbeat_s=time.time() - 60)
    supervised = killed(**oom() | {"limit_at": JOB, "attempt": 1})
    write(made.path, outcome=supervised, samples=ramp(200, 1020))
    (made.path / "memory.jsonl").write_text(json.dumps(record("begin", "train", 25, 700, step=7)) + "\n")
    run = RunFolder(made.path)
    outcome = outcome_of(run)
    assert outcome.state == "oom"
    golden.text(str(outcome.reason), numbers=False)
    assert after_run(run, outcome)[0][0] == f"python -m memory explain {made.path}"
    page = run_page(run, [], Terminal(color=False, unicode=False, width=200))
    golden.text(page, numbers=False)
