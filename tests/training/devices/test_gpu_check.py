"""A GPU that torch cannot use is an error with its reason; without one expected, the CPU is taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpus import GB

from conf.schema import Training
from experiment_utils.errors import UserError
from memory.measure.gpus import GpuDevice
from tests.golden_text import Golden, refused
from training.devices import gpu_check
from training.devices.device import resolve_device, take_gpu
from training.devices.gpu_check import (
    build_for,
    check_gpu,
    device_kind,
    foreseen_problem,
    gpus_of_job,
    has_code_for,
    may_have_gpu,
)

CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
JOB = {"SLURM_JOB_ID": "7"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A torch and a machine that a test describes."""

    def describe(
        *,
        sees: bool = False,
        build: str = "2.13.0+cu130",
        cuda: str | None = "13.0",
        driver: str | None = None,
        capability: tuple[int, int] = (9, 0),
        gpus: int = 0,
        files: tuple[str, ...] = (),
        silent: str | None = None,
    ) -> None:
        there = tuple(
            GpuDevice(number, f"GPU-{number}", "A", GB, 0, driver=driver, capability=capability)
            for number in range(gpus)
        )
        monkeypatch.setattr(torch, "__version__", build)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A")
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: CUDA_13)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GB, GB))
        monkeypatch.setattr(gpu_check, "driver_version", lambda: driver)
        monkeypatch.setattr(gpu_check, "read_gpus", lambda: (there, silent))
        monkeypatch.setattr(gpu_check, "GPU_DEVICE_FILES", files)
        monkeypatch.setattr(gpu_check, "_library_cuda", lambda: 0)
        gpu_check._first_gpu.cache_clear()

    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    yield describe
    gpu_check._first_gpu.cache_clear()


def refusal(asked: str = "auto", **environ: str) -> str:
    with pytest.raises(UserError) as caught:
        device_kind(asked, environ)
    (problem,) = caught.value.problems
    assert problem.where == "training.device"
    assert "training.device=cpu" in problem.what
    return problem.what


@pytest.mark.parametrize(
    ("environ", "asks"),
    [
        ({}, False),
        ({"SLURM_JOB_GPUS": "0"}, True),
        ({"SLURM_STEP_GPUS": "2,3"}, True),
        ({"SLURM_GPUS_ON_NODE": "2"}, True),
        ({"SLURM_GPUS_ON_NODE": "0"}, False),
        ({"SLURM_GPUS": "a100:4"}, True),
        ({"SLURM_GPUS_PER_NODE": "a100:1(S:0)"}, True),
        ({"SLURM_GPUS": "0"}, False),
        ({"SLURM_TRES_PER_TASK": "cpu=2,gres/gpu:1"}, True),
        ({"SLURM_JOB_GPUS": ""}, False),
    ],
)
def test_gpus_that_a_job_asked_for(environ: dict[str, str], asks: bool) -> None:
    assert (gpus_of_job(JOB | environ) is not None) == asks
    assert gpus_of_job(environ) is None, "outside of a job"


def test_a_gpu_that_torch_sees_is_taken(machine: Callable[..., None]) -> None:
    machine(sees=True)
    assert device_kind("auto", JOB) == ("cuda", None)
    assert device_kind("cpu", JOB | {"SLURM_JOB_GPUS": "0"}) == ("cpu", None)


def test_a_cpu_where_no_gpu_is_expected(machine: Callable[..., None]) -> None:
    machine()
    assert device_kind("auto", {}) == ("cpu", None)
    machine(files=("null",), gpus=1)
    kind, why = device_kind("auto", JOB)
    assert kind == "cpu"
    assert why is not None
    for value in ("", "-1", "NoDevFiles"):
        kind, why = device_kind("auto", {"CUDA_VISIBLE_DEVICES": value})
        assert kind == "cpu"
        assert why is not None
        assert "CUDA_VISIBLE_DEVICES" in why


def test_the_reason_for_a_cpu_is_logged_once(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    caplog.set_level("INFO")
    found = resolve_device(Training(), {})
    assert len(caplog.records) == 1
    resolve_device(Training(), {"device": found.kind})
    resolve_device(Training(device="cpu"), {})
    assert len(caplog.records) == 1


@pytest.mark.parametrize("environ", [{}, JOB | {"SLURM_JOB_GPUS": "0"}])
def test_a_driver_that_is_too_old(machine: Callable[..., None], environ: dict[str, str]) -> None:
    machine(driver="535.183.01", gpus=1, files=("null",))
    said = refusal(**environ)
    for words in ("535.183.01", "580", "torch==2.13.0+cu126", "https://download.pytorch.org/whl/cu126"):
        assert words in said
    machine(driver="470.57.02", gpus=1, files=("null",))
    said = refusal(**environ)
    assert "470.57.02" in said
    assert "torch==" not in said


def test_a_build_for_cpus(machine: Callable[..., None]) -> None:
    machine(build="2.13.0+cpu", cuda=None, driver="580.65.06", gpus=1, files=("null",))
    said = refusal()
    assert "2.13.0+cpu" in said
    assert "whl/cu130" in said
    machine(build="2.13.0+cpu", cuda=None, driver="580.65.06", gpus=1, capability=(7, 0), files=("null",))
    assert "whl/cu126" in refusal(), "of a V100"


def test_gpus_that_are_hidden(machine: Callable[..., None]) -> None:
    machine(driver="580.65.06", gpus=2, files=("null",))
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    assert "unset CUDA_VISIBLE_DEVICES" in refusal(**JOB, SLURM_JOB_GPUS="0", **hidden)
    assert "unset CUDA_VISIBLE_DEVICES" in refusal("cuda", **hidden)
    assert "CUDA_VISIBLE_DEVICES=5" in refusal(CUDA_VISIBLE_DEVICES="5")


def test_a_driver_that_does_not_answer(machine: Callable[..., None]) -> None:
    silent = "GPUs: driver-silent"
    machine(files=("null",), silent=silent)
    assert "driver-silent" in refusal()


def test_the_reason_of_torch_where_nothing_else_is_known(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def init() -> None:
        raise RuntimeError(
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
        )

    machine(driver="580.65.06", gpus=1, files=("null",))
    monkeypatch.setattr(torch.cuda, "init", init)
    said = refusal()
    assert "802" in said
    golden.text(said)


def test_a_gpu_without_code_in_the_build(machine: Callable[..., None]) -> None:
    machine(sees=True, capability=(7, 0), driver="580.65.06")
    with pytest.raises(UserError) as caught:
        resolve_device(Training(), {})
    said = str(caught.value)
    assert "7.0" in said
    assert "torch==2.13.0+cu126" in said


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((9, 0), CUDA_13, True),
        ((8, 9), CUDA_13, True),
        ((7, 0), CUDA_13, False),
        ((12, 1), CUDA_13, True),
        ((10, 3), ["sm_90", "compute_90"], True),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90"], False),
        ((8, 0), ["sm_86"], False),
        ((9, 0), [], True),
        ((9, 4), ["gfx942"], True),
    ],
)
def test_code_for_a_capability(capability: tuple[int, int], architectures: list[str], runs: bool) -> None:
    assert has_code_for(capability, architectures) == runs


@pytest.mark.parametrize(
    ("driver", "capability", "build"),
    [
        ("580.65.06", (9, 0), "cu130"),
        ("590.1", None, "cu130"),
        ("580.65.06", (7, 0), "cu126"),
        ("535.183.01", (8, 0), "cu126"),
        ("525.60.13", None, "cu126"),
        ("570.86.15", (12, 0), None),
        ("470.57.02", (7, 0), None),
        (None, (9, 0), "cu126"),
        ("garbage", None, "cu126"),
    ],
)
def test_build_for_a_driver(
    driver: str | None, capability: tuple[int, int] | None, build: str | None
) -> None:
    found = build_for(driver, capability)
    assert (found and found.name) == build


def test_a_driver_that_hangs_is_not_waited_for(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(sees=True)
    hangs = threading.Event()
    monkeypatch.setattr(gpu_check, "LIMIT_S", 0.05)
    for name in ("is_available", "mem_get_info"):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, name, hangs.wait)
            with refused("gpu-driver-silent"):
                resolve_device(Training(), {})
    hangs.set()


def test_a_driver_that_hangs_is_started_before_torch_asks(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch holds Python's lock while the driver starts: no thread would see that the time is up."""
    machine(sees=True)
    hangs, asked = threading.Event(), []
    monkeypatch.setattr(gpu_check, "LIMIT_S", 0.05)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(asked.append(1)))
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(cuInit=lambda flags: hangs.wait()))
    for device in ("auto", "cpu"):
        with refused("gpu-driver-silent") as caught:
            device_kind(device, {})
        assert "whl/cpu" in str(caught.value), "a backward pass on the CPU waits for the driver as well"
    hangs.set()
    assert not asked


def test_a_gpu_that_another_process_has_to_itself(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy() -> None:
        raise torch.AcceleratorError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore")

    machine(sees=True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", busy)
    with pytest.raises(UserError, match="exclusive"):
        check_gpu()


def test_ranks_are_refused_as_a_run_is(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(files=("null",))
    with pytest.raises(UserError):
        take_gpu(Training(), {}, 1)
    assert take_gpu(Training(device="cpu"), {}, 1) == "cpu"
    assert take_gpu(Training(), {"device": "cpu"}, 1) == "cpu", "as the attempts before it"


def test_a_gpu_is_expected_by_its_device_file(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(files=("no-such-file",))
    assert not may_have_gpu({})
    assert may_have_gpu(JOB | {"SLURM_GPUS_ON_NODE": "1"})
    machine(files=("null",))
    assert may_have_gpu({})
    assert not may_have_gpu({"CUDA_VISIBLE_DEVICES": ""})


def test_a_graphics_unit_of_another_make_is_no_gpu(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def glob(folder: Path, pattern: str) -> list[Any]:
        return [folder / pattern] if pattern in ("kfd", "dxg") else []

    machine(files=("kfd", "dxg"))
    monkeypatch.setattr(Path, "glob", glob)
    monkeypatch.setattr("os.access", lambda path, mode: True)
    monkeypatch.setattr(gpu_check, "has_driver", lambda: False)
    assert device_kind("auto", {}) == ("cpu", None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert "/dev/kfd" in refusal()


def test_a_job_without_gpus_has_one_only_if_torch_can_use_it(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(files=("null",))
    for build, may in (("cpu", False), ("cuda", True)):
        monkeypatch.setattr(gpu_check, "torch_build", lambda build=build: build)
        assert may_have_gpu(JOB) == may


def test_a_plan_foresees_a_torch_that_does_not_fit(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def foreseen(environ: dict[str, str], asked: str = "auto", cuda: str | None = None) -> str:
        facts = {"__version__": "2.13.0"} | ({"cuda": cuda} if cuda else {})
        monkeypatch.setattr(gpu_check, "torch_facts", lambda: facts)
        monkeypatch.setattr(gpu_check, "torch_build", lambda: "cuda" if cuda else "cpu")
        return str(foreseen_problem(asked, environ) or "")

    machine(files=("null",), gpus=1, driver="535.183.01")
    assert "torch==2.13.0+cu126" in foreseen({})
    assert "torch==2.13.0+cu126" in foreseen(JOB | {"SLURM_JOB_GPUS": "0"})
    assert "580" in foreseen({}, cuda="13.0")
    assert foreseen({}, cuda="12.6") == ""
    assert foreseen(JOB) == "", "it trains on the CPU"
    assert foreseen({}, asked="cpu") == ""
    assert foreseen({"CUDA_VISIBLE_DEVICES": ""}) == ""


def test_a_plan_of_many_runs_asks_the_driver_once(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(files=("null",), gpus=1, driver=None)
    asked: list[None] = []
    monkeypatch.setattr(gpu_check, "read_gpus", lambda: (asked.append(None) or (), None))
    monkeypatch.setattr(gpu_check, "torch_facts", lambda: {"__version__": "2.13.0", "cuda": "13.0"})
    monkeypatch.setattr(gpu_check, "torch_build", lambda: "cuda")
    assert [foreseen_problem("auto", {}) for _ in range(3)] == [None] * 3
    assert len(asked) == 1


def test_a_later_library_runs_on_an_older_driver(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "torch_facts", lambda: {"__version__": "2.13.0", "cuda": "13.0"})
    monkeypatch.setattr(gpu_check, "torch_build", lambda: "cuda")
    machine(files=("null",), gpus=1, driver="535.183.01")
    assert foreseen_problem("auto", {}) is not None
    monkeypatch.setattr(gpu_check, "_library_cuda", lambda: 13)
    assert foreseen_problem("auto", {}) is None
