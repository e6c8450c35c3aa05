"""A real limit: what cannot fit is refused, `auto` finds what does, and the kernel kills nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_run import ROOT

from memory.cgroup import find_levels
from memory.constants import FRAMEWORK_BASE
from memory.kernel_files import read_counters
from memory.torch_build import torch_build
from training.attempt.run_files import read_run, read_status

pytestmark = pytest.mark.timeout(900)

MB = 1 << 20
LIMIT_BYTES = 900 * MB + FRAMEWORK_BASE.in_bytes - int(FRAMEWORK_BASE.value)  # more, for the CUDA build
DATA = ("dataset.path=synthetic:uniform:50257:10M:0", "tokenizer=ids", "training.device=cpu")
ARGUMENTS = (
    "model=64d", *DATA, "training.seq_len=512", "training.effective_batch=32", "training.max_steps=1",
    "training.evals=1", "training.eval_tokens=512",
)  # fmt: skip
CASES = {
    "small": ("model=48d", "dataset.path=synthetic:uniform:257:10M:0"),
    "wide": ("model=128d", "training.micro_batch=16"),
    "few tokens": ("model=160d", "training.micro_batch=1", "training.effective_batch=2"),
    "checkpointed": ("model=128d", "training.micro_batch=16", "training.activation_checkpointing=true"),
    "compiled": ("model=32d", "training.micro_batch=8", "training.compile=true"),
}
STEPS = (
    "training.max_steps=2", "training.evals=1", "training.eval_tokens=4K", "training.checkpoint_every=1",
)  # fmt: skip

Job = Callable[[int], Path]


@pytest.fixture
def make_job() -> Iterator[Job]:
    """Make a cgroup with a limit in bytes, and return its folder."""
    with ExitStack() as jobs:
        yield lambda limit_bytes: jobs.enter_context(limited(limit_bytes))


@contextmanager
def limited(limit_bytes: int) -> Iterator[Path]:
    version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
    if not levels:
        pytest.skip("no memory cgroup to make another one in")
    folder = Path(levels[0].folder) / f"highwater_test_{os.getpid()}_{time.time_ns()}"
    try:
        folder.mkdir()
        if version == 2:
            (folder.parent / "cgroup.subtree_control").write_text("+memory")
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (folder / limit).write_text(str(limit_bytes))
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


def experiments(
    place: Path, *arguments: str, job: Path | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run experiments.py in a folder, in a cgroup, with torch.compile's cache empty."""
    enter = "exec" if job is None else f'echo $$ > "{job}/cgroup.procs" && exec'
    command = ["sh", "-c", f'{enter} "$@"', "sh", python, str(ROOT / "experiments.py"), *arguments]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place)}
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=800, env=environment, check=False
    )


def kills(job: Path) -> int:
    counters = read_counters(f"{job}/memory.oom_control") or read_counters(f"{job}/memory.events")
    return counters.get("oom_kill", 0)


@pytest.mark.privileged
@pytest.mark.slow
def test_auto_finds_what_fits_where_more_is_refused(make_job: Job, tmp_path: Path) -> None:
    job = make_job(LIMIT_BYTES)
    refused = experiments(tmp_path, *ARGUMENTS, "training.micro_batch=32", job=job)
    assert refused.returncode == 2
    assert f"/{job.name} allows" in refused.stderr
    assert not (tmp_path / "runs").exists(), "nothing was started"

    done = experiments(tmp_path, *ARGUMENTS, job=job)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs" / "default").iterdir()
    run = read_run(folder)
    assert 1 < run["auto"]["micro_batch"] < 32
    advised = int(re.findall(r"micro_batch=(\d+)", refused.stderr)[0])
    assert run["auto"]["micro_batch"] <= advised
    assert run["memory"]["fits"]
    assert kills(job) == 0


def runs_in_what_is_recommended(make_job: Job, place: Path, case: str, python: str, build: str) -> None:
    """Run a job to its end in a cgroup of exactly the memory that its plan recommends."""
    arguments = (*DATA, *CASES[case], *STEPS)
    planned = experiments(place, *arguments, "plan=true", "--json", python=python)
    memory: dict[str, Any] = json.loads(planned.stdout)[0]["memory"]
    assert memory["torch_build"] == build
    job = make_job(memory["recommended_mem_bytes"])
    done = experiments(place, *arguments, job=job, python=python)
    assert (done.returncode, kills(job)) == (0, 0), done.stdout[-2000:] + done.stderr[-2000:]
    (folder,) = (place / "runs" / "default").iterdir()
    assert read_status(folder)["state"] == "done"


@pytest.mark.privileged
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_job_runs_in_the_memory_its_plan_recommends(make_job: Job, tmp_path: Path, case: str) -> None:
    runs_in_what_is_recommended(make_job, tmp_path, case, sys.executable, torch_build())


@pytest.mark.cuda_build
@pytest.mark.parametrize("case", CASES)
def test_the_same_with_the_cuda_build_of_torch(make_job: Job, tmp_path: Path, case: str) -> None:
    python = Path(os.environ.get("HIGHWATER_CUDA_VENV", "/nonexistent")) / "bin" / "python"
    if not python.exists():
        pytest.skip("HIGHWATER_CUDA_VENV names no environment with the CUDA build of torch")
    runs_in_what_is_recommended(make_job, tmp_path, case, str(python), "cuda")
