"""A real limit: what cannot fit is refused, `auto` finds what does, and the kernel kills nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from supervised import limited_cgroup
from tiny_run import ROOT

from memory.estimate.constants import FRAMEWORK_BASE
from memory.estimate.torch_build import torch_build
from memory.files.procfs import read_counters
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

Job = tuple[tuple[str, ...], Path, str]
MakeJob = Callable[[int], Job]


@pytest.fixture
def make_job() -> Iterator[MakeJob]:
    """Make a cgroup with a limit in bytes (`limited_cgroup`)."""
    with ExitStack() as jobs:
        yield lambda limit_bytes: jobs.enter_context(limited_cgroup(limit_bytes))


def experiments(
    place: Path, *arguments: str, job: Job | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run experiments.py in a folder, in a cgroup, with torch.compile's cache empty."""
    command = [*(job[0] if job else ()), python, str(ROOT / "experiments.py"), *arguments]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place)}
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=800, env=environment, check=False
    )


def kills(job: Job) -> int:
    counted = 0
    for folder in (job[1], job[1] / "task_0"):
        counters = read_counters(f"{folder}/memory.oom_control") or read_counters(f"{folder}/memory.events")
        counted += counters.get("oom_kill", 0)
    return counted


@pytest.mark.privileged
@pytest.mark.slow
def test_auto_finds_what_fits_where_more_is_refused(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(LIMIT_BYTES)
    refused = experiments(tmp_path, *ARGUMENTS, "training.micro_batch=32", job=job)
    assert refused.returncode == 2
    assert f"/{job[1].name} allows" in refused.stderr
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


def runs_in_what_is_recommended(make_job: MakeJob, place: Path, case: str, python: str, build: str) -> None:
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
def test_a_job_runs_in_the_memory_its_plan_recommends(make_job: MakeJob, tmp_path: Path, case: str) -> None:
    runs_in_what_is_recommended(make_job, tmp_path, case, sys.executable, torch_build())


@pytest.mark.cuda_build
@pytest.mark.parametrize("case", CASES)
def test_the_same_with_the_cuda_build_of_torch(make_job: MakeJob, tmp_path: Path, case: str) -> None:
    python = Path(os.environ.get("HIGHWATER_CUDA_VENV", "/nonexistent")) / "bin" / "python"
    if not python.exists():
        pytest.skip("HIGHWATER_CUDA_VENV names no environment with the CUDA build of torch")
    runs_in_what_is_recommended(make_job, tmp_path, case, str(python), "cuda")
