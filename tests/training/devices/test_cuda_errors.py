"""Errors of CUDA have one-line reasons; a lack of memory is not one of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import make_run, metrics_without_clock, run_here, tiny_config

from training.attempt.run_files import read_status
from training.devices.cuda_errors import FAULTS, cuda_fault
from training.optimizers.groups import set_lr
from training.run.exit_reason import ending_of

GENERAL = """
Search for `cudaErrorLaunchFailure' in https://docs.nvidia.com/cuda/cuda-runtime-api/ for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be
incorrect.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.words)
def test_each_fault_is_one_line(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    said = cuda_fault(torch.AcceleratorError(f"CUDA error: {fault.words}{GENERAL}"))
    assert said is not None
    assert "\n" not in said
    assert fault.reason in said
    assert ("--exclude" in said) == fault.is_of_node
    monkeypatch.delenv("SLURM_JOB_ID")
    assert "--exclude" not in str(cuda_fault(torch.AcceleratorError(f"CUDA error: {fault.words}{GENERAL}")))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        torch.AcceleratorError(f"CUDA error: out of memory{GENERAL}"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("unknown error"),
        ValueError("CUDA error: unknown error"),
    ],
)
def test_other_errors_are_no_fault(error: Exception) -> None:
    assert cuda_fault(error) is None


def test_a_gpu_that_falls_off_the_bus_ends_the_run_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n12")
    (tmp_path / "checkpoints/step-00000040").mkdir(parents=True)
    error = torch.AcceleratorError(f"CUDA error: unspecified launch failure{GENERAL}")
    state, code, reason = ending_of(error, tmp_path)
    assert (state, code) == ("failed", 1)
    assert "--exclude=n12" in reason
    assert "step 40" in reason
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "\n" not in record.getMessage()


def test_a_run_keeps_its_checkpoints_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = make_run(tiny_config(tmp_path, device="auto"))
    steps = iter(range(40))

    def fails(*arguments: Any, **options: Any) -> None:
        if next(steps) == 20:
            raise torch.AcceleratorError(f"CUDA error: uncorrectable ECC error encountered{GENERAL}")
        set_lr(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("training.optimizers.groups.set_lr", fails)
        done = run_here(folder)
    status = read_status(folder)
    assert (done.returncode, status["state"]) == (1, "failed")
    assert "uncorrectable ECC" in status["reason"]
    assert (folder / "log.txt").read_text().count("Traceback") == 1
    assert "Traceback" not in done.stderr
    assert (folder / "checkpoints/step-00000014").is_dir()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    assert run_here(folder).returncode == 0, "on the CPU, as it began"
    assert "SLURM_JOB_GPUS=0" in (folder / "log.txt").read_text()
    assert len(metrics_without_clock(folder)) == 40
