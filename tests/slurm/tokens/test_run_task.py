"""One task in one start of its job: waiting for others, the time limit, status.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from data_loading.pretokenizer.distributed.task_plan import SetTask
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lease
from slurm.cluster.current_job import Job
from slurm.tokens import run_task
from tests.golden_text import Golden
from tests.slurm.tokens.conftest import write_text

TASK = SetTask(1, 3)
ME = Job("42_1", "43", restart=1)


@pytest.fixture
def files(tmp_path: Path) -> SetFiles:
    found = TASK.files(tmp_path / "parts")
    found.tokens.parent.mkdir()
    return found


def test_the_lock_of_a_lost_node_is_taken_over(files: SetFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = {"host": "elsewhere", "pid": 1, "started_at": 1, "since": "today", "job_id": ME.raw_id}
    files.lock.write_text(json.dumps(holder))
    monkeypatch.setattr(lease, "LAPSE_S", 0.3)
    monkeypatch.setattr(run_task, "AGAIN_S", 0.05)
    run_task.wait_for_others(files, TASK)
    assert not files.lock.exists()


def test_another_process_that_does_the_task_is_waited_for(
    files: SetFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_task, "AGAIN_S", 0.05)
    other = subprocess.Popen(["sleep", "60"])
    try:
        started = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        holder = {"host": os.uname().nodename, "pid": other.pid, "started_at": int(started), "since": "x"}
        files.lock.write_text(json.dumps({**holder, "job_id": "7"}))
        ended = threading.Event()

        def end() -> None:
            ended.set()
            files.lock.unlink()

        threading.Timer(0.5, end).start()
        run_task.wait_for_others(files, TASK)
        assert ended.is_set()
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("progress", [True, False])
def test_at_the_time_limit_the_job_is_put_back_if_it_wrote_something(
    files: SetFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], progress: bool,
    golden: Golden,
) -> None:  # fmt: skip
    files.partial.mkdir()
    shard = files.partial / "shard_00000.npy"
    shard.write_bytes(bytes(10))
    calls = list[str]()
    monkeypatch.setattr(Job, "requeue", lambda self: calls.append(self.id))

    def comes(_: object) -> None:
        if progress:
            shard.write_bytes(bytes(20))

    monkeypatch.setattr(signal, "sigwait", comes)
    run_task.requeue_on_signal(files, ME)
    assert calls == (["42_1"] if progress else [])
    golden.text(capsys.readouterr().err, numbers=False)


@pytest.mark.parametrize(("text", "state", "code"), [("water", "done", 0), (None, "failed", 2)])
def test_status_says_how_it_ended(tmp_path: Path, text: str | None, state: str, code: int) -> None:
    """In a process of its own: it replaces handlers and runs the entry as `__main__`."""
    if text is not None:
        write_text(tmp_path / "a.txt", lines=100)
    folder = tmp_path / ".parts.slurm" / "00000-of-00001"
    folder.mkdir(parents=True)
    arguments = ["a.txt", "--tokenizer", "bytes", "--output", "parts", "--tokens-per-shard", "1K"]
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, "-m", "slurm.tokens.run_task", str(tmp_path / "parts"), folder.name, *arguments],
            cwd=tmp_path, env={**os.environ, "SLURM_JOB_ID": "42"}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        status = json.loads((folder / "status.json").read_text())
        assert (status["state"], status["attempt"]) == (state, attempt)
    assert (tmp_path / "parts" / "manifest.json").exists() == (state == "done")
