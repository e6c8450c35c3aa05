"""A real limit: what cannot fit is refused, `auto` finds what does, and the kernel kills nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_run import ROOT

import experiment_utils
from memory.cgroup import find_levels
from memory.kernel_files import read_counters

pytestmark = [pytest.mark.privileged, pytest.mark.slow, pytest.mark.timeout(900)]

MB = 1 << 20
LIMIT_BYTES = 900 * MB
ARGUMENTS = (
    "model=64d", "dataset.path=synthetic:uniform:50257:10M:0", "tokenizer=ids", "training.seq_len=512",
    "training.effective_batch=32", "training.max_steps=1", "training.evals=1", "training.eval_tokens=512",
    "training.device=cpu",
)  # fmt: skip


@pytest.fixture
def job() -> Iterator[Path]:
    """A cgroup of 900 MB."""
    version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
    if not levels:
        pytest.skip("no memory cgroup to make another one in")
    folder = Path(levels[0].folder) / f"highwater_test_{os.getpid()}_{time.time_ns()}"
    try:
        folder.mkdir()
        if version == 2:
            (folder.parent / "cgroup.subtree_control").write_text("+memory")
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"cannot make a cgroup with a limit here: {error}")
    yield folder
    for _ in range(100):
        with suppress(OSError):
            folder.rmdir()
            break
        time.sleep(0.1)


def experiments(job: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    enter = f'echo $$ > "{job}/cgroup.procs" && exec "$@"'
    command = ["sh", "-c", enter, "sh", sys.executable, str(ROOT / "experiments.py"), *ARGUMENTS, *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=800)


def test_auto_finds_what_fits_where_more_is_refused(job: Path, tmp_path: Path) -> None:
    refused = experiments(job, tmp_path, "training.micro_batch=32")
    assert refused.returncode == 2
    assert f"/{job.name} allows" in refused.stderr
    assert "The nearest that fits: training.micro_batch=" in refused.stderr
    assert not (tmp_path / "runs").exists(), "nothing was started"

    done = experiments(job, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs" / "default").iterdir()
    run = experiment_utils.read_run(folder)
    assert 1 < run["auto"]["micro_batch"] < 32
    advised = int(re.findall(r"micro_batch=(\d+)", refused.stderr)[0])
    assert run["auto"]["micro_batch"] <= advised
    assert run["memory"]["fits"]
    kills = read_counters(f"{job}/memory.oom_control") or read_counters(f"{job}/memory.events")
    assert kills.get("oom_kill", 0) == 0
