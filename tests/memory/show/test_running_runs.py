"""Whether a run runs: `watch` and `explain` ask its process, whoever of it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised import python, start_supervised, wait_for

from memory.explain.evidence.run_facts import RunFacts
from memory.measure.process import started_at
from memory.record.evidence import Evidence
from memory.record.ring import read_ring
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]


def memory(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, **options,
    )  # fmt: skip


def _sampled_pid(folder: Path) -> int:
    ring = wait_for(lambda: (ring := read_ring(folder / "memory.ring")) and ring.taken and ring)
    return int(ring.facts["pid"])


def test_the_supervisor_alone_is_killed_and_the_command_goes_on(tmp_path: Path, golden: Golden) -> None:
    process = start_supervised(tmp_path, python("import time; time.sleep(60)"))
    pid = _sampled_pid(tmp_path)
    began = started_at(pid)
    try:
        process.kill()
        process.wait()  # the command holds the pipe that communicate() would read
        look = json.loads(memory("watch", tmp_path, "--once", "--json").stdout)
        assert (look["ended"], look["processes"]) == (None, 1)
        assert look["note"] in memory("watch", tmp_path, "--once").stdout
        facts = RunFacts(Evidence(tmp_path), now_s=time.time() + 3000)
        assert facts.is_running, "nobody writes samples, and its process is there"
        watching = subprocess.Popen(
            [sys.executable, "-m", "memory", "watch", str(tmp_path), "--interval", "0.1"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert watching.stdout is not None
        assert look["note"] in watching.stdout.readline()
    finally:
        if started_at(pid) == began:
            os.kill(pid, signal.SIGKILL)
    told = watching.communicate(timeout=240)[0].splitlines()
    golden.text(f"{look['note']}\n{told[-2]}", pids=[pid])
    facts = RunFacts(Evidence(tmp_path))
    assert facts.vanished
    assert not facts.is_running


@pytest.mark.parametrize("known_by", ["run.lock", "status.json"])
def test_a_run_without_a_supervisor_whose_process_is_gone_does_not_run(tmp_path: Path, known_by: str) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    began = started_at(gone.pid)
    who = {"pid": gone.pid, "host": os.uname().nodename}
    status = {"state": "running", "attempt": 1, "heartbeat_s": time.time(), **who}
    (tmp_path / "status.json").write_text(json.dumps(status))
    if known_by == "run.lock":
        (tmp_path / "run.lock").write_text(json.dumps({**who, "started_at": began}))
    try:
        assert RunFacts(Evidence(tmp_path)).is_running
    finally:
        gone.kill()
        gone.wait()
    assert not RunFacts(Evidence(tmp_path)).is_running
    assert "running" not in memory("explain", tmp_path).stdout.splitlines()[0]
    (tmp_path / "status.json").write_text(json.dumps({**status, "host": "elsewhere"}))
    (tmp_path / "run.lock").unlink(missing_ok=True)
    assert RunFacts(Evidence(tmp_path)).is_running, "its beat was heard just now"


def test_watch_without_a_word_takes_what_runs(tmp_path: Path, golden: Golden) -> None:
    environment = {**os.environ, "HIGHWATER_RUNS_DIR": str(tmp_path)}
    environment.pop("SLURM_JOB_ID", None)
    nothing = memory("watch", "--once", env=environment)
    assert nothing.returncode == 2
    golden.text(nothing.stderr, "nothing runs")
    job = memory("watch", "--once", env=environment | {"SLURM_JOB_ID": "987654321"})
    golden.text(job.stderr.splitlines()[0], "job")
    folder = tmp_path / "study" / "run-12345678"
    folder.mkdir(parents=True)
    (folder / "config.yaml").touch()
    process = start_supervised(folder, python("import time; time.sleep(60)"))
    try:
        _sampled_pid(folder)
        look = memory("watch", "--once", env=environment)
    finally:
        process.terminate()
        process.communicate()
    golden.text(look.stderr, "run")
    assert "%)" in look.stdout
    assert memory("watch", "--once", env=environment).returncode == 2
