"""The process beside a task of a token set: who else does it, the time limit, how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from data_loading.pretokenizer.block_range import BlockRange
from data_loading.set_files import SetFiles
from slurm.in_job import lock, tokens
from slurm.in_job.job import Job
from tests.golden_text import Golden

TASK = BlockRange(1, 3)
ME = Job("42_1", "43", restart=1)


@pytest.fixture
def files(tmp_path: Path) -> SetFiles:
    found = TASK.files(tmp_path / "parts")
    found.tokens.parent.mkdir()
    return found


def hold(files: SetFiles, host: str, job_id: str) -> None:
    holder = {"host": host, "pid": 1, "started_at": 1, "since": "today", "job_id": job_id}
    files.lock.write_text(json.dumps(holder))


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_its_exit_status_is_that_of_the_pretokenizer(files: SetFiles) -> None:
    assert tokens.run(python("import sys; sys.exit(2)"), files, ME, tokens.Asked()) == 2


def test_a_kill_is_told(files: SetFiles, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert tokens.run(python(code), files, ME, tokens.Asked()) == 128 + signal.SIGKILL
    golden.text(capsys.readouterr().err, numbers=False)


def test_a_lost_nodes_lock_is_taken_over(files: SetFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(files, "elsewhere", job_id=ME.raw_id)
    monkeypatch.setattr(tokens, "living_holder", partial(lock.living_holder, still_s=0.2))
    assert tokens._is_free(files, TASK, ME, tokens.Asked())
    assert not files.lock.exists()


def test_who_does_the_task_is_waited_for(files: SetFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not left alone as a run is: the merge counts on this job's end."""
    monkeypatch.setattr(tokens, "AGAIN_S", 5.0)
    monkeypatch.setattr(tokens, "POLL_S", 0.05)
    other = subprocess.Popen(["sleep", "60"])
    try:
        started = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        host = os.uname().nodename
        holder = {"host": host, "pid": other.pid, "started_at": int(started), "since": "x", "job_id": "7"}
        files.lock.write_text(json.dumps(holder))
        threading.Timer(0.5, files.lock.unlink).start()
        began = time.monotonic()
        assert tokens._is_free(files, TASK, ME, tokens.Asked())
        assert time.monotonic() - began > 0.4
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("progress", [True, False])
def test_the_time_is_up(
    files: SetFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], progress: bool,
    golden: Golden,
) -> None:  # fmt: skip
    """Put back into the queue once, and only where this start has written something."""
    monkeypatch.setattr(tokens, "POLL_S", 0.05)
    files.partial.mkdir()
    (files.partial / "shard_00000.npy").write_bytes(bytes(10))
    asked, calls = tokens.Asked(), list[str]()
    monkeypatch.setattr(Job, "requeue", lambda self: calls.append(self.id))
    write = f"open({str(files.partial / 'shard_00000.npy')!r}, 'ab').write(bytes(10))" if progress else ""
    done = f"open({str(files.tokens.parent / 'wrote')!r}, 'w')"

    def signals() -> None:
        while not (files.tokens.parent / "wrote").exists():
            time.sleep(0.01)
        asked.time_is_up = True

    threading.Thread(target=signals).start()
    code = f"import time\n{write}\n{done}\ntime.sleep(0.6)"
    assert tokens.run(python(code), files, ME, asked) == 0
    assert calls == (["42_1"] if progress else [])
    golden.text(capsys.readouterr().err, numbers=False)


def test_a_request_to_stop_is_passed_on_as_ctrl_c(files: SetFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "POLL_S", 0.05)
    asked = tokens.Asked()
    ready = files.tokens.parent / "ready"
    code = f"""
import sys, time
try:
    open({str(ready)!r}, "w")
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""

    def signals() -> None:
        while not ready.exists():
            time.sleep(0.01)
        asked.to_stop = True

    threading.Thread(target=signals).start()
    assert tokens.run(python(code), files, ME, asked) == 130


def test_signals_of_slurm_are_not_for_the_pretokenizer(files: SetFiles) -> None:
    """Slurm signals the whole group, and USR2 would end it."""
    out = files.tokens.parent / "group"
    code = f"import os; open({str(out)!r}, 'w').write(str(os.getpgid(0)))"
    tokens.run(python(code), files, ME, tokens.Asked())
    assert int(out.read_text()) != os.getpgid(0)
