"""benchmarks/memory_explain.py: how other tools are read, and the counts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import memory_peers
from benchmarks.memory_explain import Asked, needs_nothing, score
from benchmarks.memory_peers import MB, Log, Said, sacct, seff
from tests.golden_text import Golden
from tests.memory.deaths.cases import Case, read_cases


def row(job: str, state: str, max_rss: str = "", exit_code: str = "0:0") -> dict[str, str]:
    return {
        "JobID": job,
        "State": state,
        "ExitCode": exit_code,
        "MaxRSS": max_rss,
        "ReqMem": "150M",
        "NTasks": "1" if "." in job else "",
    }


NO_ROOT = "no root"
SWALLOWED = [row("7", "COMPLETED"), row("7.batch", "COMPLETED", "3904K"), row("7.0", "OUT_OF_MEMORY", "22M")]
MAPPED = [row("8", "COMPLETED"), row("8.0", "COMPLETED", "700M")]


def test_sacct_is_read_with_its_steps_and_seff_without(golden: Golden) -> None:
    assert sacct(SWALLOWED).memory is True
    assert "0 OUT_OF_MEMORY" in sacct(SWALLOWED).says
    assert "MaxRSS 22 of 150 MB" in sacct(SWALLOWED).says
    assert seff(SWALLOWED).memory is False
    golden.text(seff(SWALLOWED).says)
    assert seff([row("9", "OUT_OF_MEMORY"), row("9.batch", "OUT_OF_MEMORY", "1M")]).memory is True
    assert seff(MAPPED).memory is True
    assert sacct([]).memory is False
    assert seff([]).memory is False


def test_a_log_of_rss_and_how_it_is_read() -> None:
    log = Log(rss_bytes=[10 * MB, 140 * MB, 20 * MB], host_percent=[3.0, 4.0])
    assert log.psutil(150) == Said("last RSS 20 MB, most 140 of 150", True)
    assert log.psutil(200).memory is False
    assert log.lightning() == Said("cpu_vm_percent 4", False)
    assert Log().psutil(100).memory is None


def test_a_log_sees_the_children_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_peers, "import_lightning", lambda: lambda: 1.0)  # seconds
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    held = "held = bytearray(b'x') * (50 << 20); print(flush=True); __import__('sys').stdin.read()"
    started = subprocess.Popen(
        [sys.executable, "-c", code, held], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    log = Log()
    with log.of(started.pid):
        until = time.monotonic() + 60
        while not log.rss_bytes and time.monotonic() < until:
            time.sleep(0.01)
    started.communicate()
    assert max(log.rss_bytes) > 50 * MB


def asked(kind: str, verdict: str, *, right: bool | None, memory: bool | None, **said: bool | None) -> Asked:
    case = Case(name=verdict, program=Path("x.py"), what="", kind=kind, verdict=(verdict,))
    told = {name: Said("", answer) for name, answer in said.items()}
    return Asked(case, right=right, memory=memory, peers=told, note=NO_ROOT if right is None else "")


def test_sums() -> None:
    group = [
        asked("death", "oom_cgroup", right=True, memory=True, psutil=False, sacct=True),
        asked("death", "failed", right=False, memory=True, psutil=None),
        asked("healthy", "healthy", right=True, memory=False, psutil=True, sacct=True),
        asked("healthy", "other", right=None, memory=None),
    ]
    found = score(group)
    assert (found["deaths"], found["deaths_right"], found["healthy"], found["false_alarms"]) == (2, 1, 1, 0)
    assert found["not_judged"] == {"other": NO_ROOT}
    of = found["died_of_the_limit"]
    assert of["explain"] == {"asked": 3, "right": 2, "missed": 0, "false_alarms": 1}
    assert of["psutil"] == {"asked": 3, "right": 1, "missed": 1, "false_alarms": 1}
    assert of["sacct"] == {"asked": 2, "right": 1, "missed": 0, "false_alarms": 1}
    assert of["seff"]["asked"] == 0


@pytest.mark.parametrize("name", ["oom_main", "ok_map_ten_times_the_limit"])
def test_plain_cases_may_be_jobs(name: str) -> None:
    (case,) = [case for case in read_cases() if case.name == name]
    assert needs_nothing(case)


def test_cases_with_surroundings_may_not() -> None:
    special = {case.name for case in read_cases() if not needs_nothing(case)}
    assert {"shm_stale", "neighbour_in_the_job", "parent_limit", "disk_full", "v2_oom_group"} <= special
