"""Whether a run runs: its process is asked, however its supervisor ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memory.explain.evidence.run_facts import RunFacts
from memory.measure.process import started_at
from memory.record.evidence import Evidence

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.mark.parametrize("known_by", ["run.lock", "status.json"])
def test_a_run_without_a_supervisor_runs_as_long_as_its_process(tmp_path: Path, known_by: str) -> None:
    process = subprocess.Popen(["sleep", "60"])
    began = started_at(process.pid)
    owner = {"pid": process.pid, "host": os.uname().nodename}
    status = {"state": "running", "attempt": 1, "heartbeat_s": time.time(), **owner}
    (tmp_path / "status.json").write_text(json.dumps(status))
    if known_by == "run.lock":
        (tmp_path / "run.lock").write_text(json.dumps({**owner, "started_at": began}))
    try:
        assert RunFacts(Evidence(tmp_path)).is_running
    finally:
        process.kill()
        process.wait()
    assert not RunFacts(Evidence(tmp_path)).is_running
    (tmp_path / "status.json").write_text(json.dumps({**status, "host": "elsewhere"}))
    (tmp_path / "run.lock").unlink(missing_ok=True)
    assert RunFacts(Evidence(tmp_path)).is_running, "its heartbeat is recent"
