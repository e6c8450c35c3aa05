"""Check that torch can use a GPU. If one is expected and cannot be used, report why and what helps."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from conf import AUTO
from experiment_utils.errors import Problem, UserError
from memory.estimate.torch_build import CPU, torch_build, torch_facts
from memory.measure.gpus import driver_version, has_driver, hides_all, is_ordered, read_gpus, select_visible
from training.devices.cuda_errors import elsewhere, fault_in

Answer = TypeVar("Answer")

LIMIT_S = 60.0
"""Time for a driver to answer torch. Without persistence mode it first starts all GPUs of the node."""

GPU_DEVICE_FILES = ("nvidia[0-9]*", "kfd", "dxg")
"""Patterns in /dev: NVIDIA's driver, AMD's, and either of them in WSL."""

MINIMUM_DRIVERS = {11: 450, 12: 525, 13: 580}
"""Major version of CUDA to the oldest branch of drivers that runs it. Source: NVIDIA, CUDA Compatibility,
"Minor Version Compatibility", table 1 (docs.nvidia.com/deploy/cuda-compatibility).
"""

_ON_CPU = "Or train on the CPU: training.device=cpu"

_GPU_LISTS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_GPU_COUNTS = (
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
)


@dataclass(frozen=True)
class Build:
    """A build of torch for CUDA, named as for pip."""

    name: str
    minimum_driver: int
    """Oldest branch of drivers."""
    capabilities: tuple[tuple[int, int], tuple[int, int]]
    """Lowest and highest compute capability that it has code for."""


BUILDS = (Build("cu130", 580, ((7, 5), (12, 9))), Build("cu126", 525, ((5, 0), (9, 0))))
"""The newest first. Source: PyTorch's RELEASE.md, "PyTorch CUDA Support Matrix"."""


def cuda_is_available() -> bool:
    """Whether torch sees a GPU. Loads torch.

    Raises:
        UserError: the driver hangs.
    """
    import torch

    def ask() -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reason is part of our own message
            return torch.cuda.is_available()

    check_driver_starts()
    return within_limit(ask)


def check_driver_starts() -> None:
    """Start the driver as torch will. Torch holds Python's lock meanwhile, so that no time limit counts; it
    does so also for a run on the CPU, whose first backward pass counts the devices of each kind.

    Raises:
        UserError: the driver hangs.
    """
    import torch

    def start() -> None:
        with suppress(OSError, AttributeError):  # no driver, or no library of it: torch finds that out
            ctypes.CDLL("libcuda.so.1").cuInit(0)

    if torch.version.cuda is not None:
        on_cpu = (
            "A run on the CPU waits for the driver too, in its first backward pass, unless torch is built for"
            f" CPUs. {_pip_install(torch.__version__, 'cpu')}"
        )
        within_limit(start, on_cpu)


def may_have_gpu(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a run here should get a GPU, decided without torch; True on systems without device files."""
    if not sys.platform.startswith("linux"):
        return True
    if hides_all(environ):
        return False
    return _expected(environ) is not None or (torch_build() != CPU and bool(_device_files()))


def gpus_of_job(environ: Mapping[str, str] = os.environ) -> str | None:
    """Slurm's variable, with its value, which shows that this job requested GPUs; None: no such variable."""
    if "SLURM_JOB_ID" not in environ:
        return None
    lists = [name for name in _GPU_LISTS if environ.get(name)]
    counts = [
        name for name in _GPU_COUNTS if re.search(r"(?:^|:)0*[1-9]\d*(?:\(|,|$)", environ.get(name, ""))
    ]
    if "gres/gpu" in environ.get("SLURM_TRES_PER_TASK", ""):
        counts.append("SLURM_TRES_PER_TASK")
    return next((f"{name}={environ[name]}" for name in (*lists, *counts)), None)


def device_kind(asked: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """The device for `training.device=asked`, and why `auto` is the CPU where a GPU could be expected.

    Args:
        asked: auto, cpu or cuda.
        environ: environment of this process.

    Raises:
        UserError: `cuda` is asked for, the job asked for GPUs, or outside of Slurm this machine has one that
            CUDA_VISIBLE_DEVICES does not hide, and torch sees none; or the driver hangs, also for `cpu`.
    """
    if asked == "cpu":
        check_driver_starts()
        return "cpu", None
    if cuda_is_available():
        return "cuda", None
    expected = _expected(environ)
    if expected is None:
        if asked == AUTO:
            if hides_all(environ):
                return "cpu", f"CUDA_VISIBLE_DEVICES={environ['CUDA_VISIBLE_DEVICES']} hides all GPUs"
            return "cpu", "this job asked for no GPU" if "SLURM_JOB_ID" in environ else None
        expected = "cuda is asked for"
    raise UserError(_problem(f"{expected}, and torch sees none", *_why_none(environ)))


def foreseen_problem(asked: str, environ: Mapping[str, str] = os.environ) -> Problem | None:
    """Problem that `device_kind` will find here, as far as known without torch; None: no problem is known."""
    expected = _expected(environ)
    if asked == "cpu" or expected is None or hides_all(environ):
        return None
    facts = torch_facts()
    misfit = _misfit(facts.get("__version__", ""), facts.get("cuda"), torch_build() == CPU)
    return None if misfit is None else _problem(f"{expected}, and torch cannot use it", *misfit)


def _expected(environ: Mapping[str, str]) -> str | None:
    """Reason why a run here should get a GPU; None: there is no reason."""
    of_job = gpus_of_job(environ)
    if of_job is not None:
        return f"this job asked for GPUs ({of_job})"
    files = [] if "SLURM_JOB_ID" in environ or hides_all(environ) else _device_files()
    return f"this machine has one ({files[0]})" if files else None


def check_gpu() -> None:
    """Open the current GPU as a step will, so that errors come before the first stage.

    Raises:
        UserError: torch has no code for it, or the driver refuses it or hangs.
    """
    import torch

    capability = within_limit(torch.cuda.get_device_capability)
    if not has_code_for(capability, torch.cuda.get_arch_list()):
        reason = (
            f"{torch.cuda.get_device_name()} has compute capability {_dotted(capability)}, for which torch "
            f"{torch.__version__} has no code ({', '.join(torch.cuda.get_arch_list())})"
        )
        raise UserError(
            _problem(
                "this GPU is not supported", reason, _install(torch.__version__, driver_version(), capability)
            )
        )
    try:
        within_limit(torch.cuda.mem_get_info)
    except RuntimeError as error:
        raise UserError(_problem("this GPU cannot be used", _in_one_line(error), elsewhere())) from error


def has_code_for(capability: tuple[int, int], architectures: Sequence[str]) -> bool:
    """Whether a build for these architectures runs on a GPU of this compute capability.

    Args:
        capability: as torch.cuda.get_device_capability returns it.
        architectures: as torch.cuda.get_arch_list returns them. `sm_80` runs on 8.0 and later of 8,
            `compute_80` on all later ones (NVIDIA, CUDA C++ Programming Guide, "Binary Compatibility").
    """
    parsed = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", name) for name in architectures]
    known = [(one[1], int(one[2]), int(one[3])) for one in parsed if one]
    return not known or any(
        (kind == "compute" and (major, minor) <= capability)
        or (major == capability[0] and minor <= capability[1])
        for kind, major, minor in known
    )


def build_for(driver: str | None, capability: tuple[int, int] | None = None) -> Build | None:
    """The newest build of torch that runs with a driver and on a GPU; None: no build does.

    Args:
        driver: version, such as 535.183.01; None: unknown, one of 2023 is assumed.
        capability: compute capability; None: unknown, any fits.
    """
    branch = _branch(driver) or MINIMUM_DRIVERS[12]
    for build in BUILDS:
        least, largest = build.capabilities
        if build.minimum_driver <= branch and (capability is None or least <= capability <= largest):
            return build
    return None


def within_limit(ask: Callable[[], Answer], on_cpu: str = _ON_CPU) -> Answer:
    """Answer of a function that waits for the driver. One that hangs is left to its thread.

    Args:
        on_cpu: advice on training on the CPU.

    Raises:
        UserError: it did not return within the time limit.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="ask the driver", daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if thread.is_alive():
        reason = f"its driver did not answer within {LIMIT_S:g} seconds"
        code = "gpu-driver-silent"
        raise UserError(_problem("the GPU cannot be used", reason, elsewhere(), on_cpu, code))
    if errors:
        raise errors[0]
    return answers[0]


def _problem(what: str, reason: str, remedy: str, on_cpu: str = _ON_CPU, code: str = "") -> Problem:
    return Problem("training.device", f"{what}: {reason}. {remedy}. {on_cpu}", code)


def _why_none(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the reason why torch sees no GPU, and the advice."""
    import torch

    visible = environ.get("CUDA_VISIBLE_DEVICES")
    is_cpu = torch.version.cuda is None and torch.version.hip is None
    if hides_all(environ) and not is_cpu:
        return f"CUDA_VISIBLE_DEVICES={visible} hides all GPUs", "Type: unset CUDA_VISIBLE_DEVICES"
    misfit = _misfit(torch.__version__, torch.version.cuda, is_cpu)
    if misfit is not None:
        return misfit
    gpus, silent = read_gpus()
    if gpus and is_ordered(gpus, environ) and not select_visible(gpus, visible):
        there = f"the {len(gpus)} GPUs" if len(gpus) > 1 else "the one GPU"
        return f"CUDA_VISIBLE_DEVICES={visible} selects none of {there} here", "See: nvidia-smi -L"
    if silent is not None:
        return silent.removeprefix("GPUs: "), elsewhere()
    try:
        within_limit(torch.cuda.init)
    except (RuntimeError, AssertionError) as error:
        return _in_one_line(error), elsewhere()
    return "the driver shows it none", elsewhere()


def _misfit(version: str, cuda: str | None, is_cpu: bool) -> tuple[str, str] | None:
    """Return why a build of torch cannot use the driver of this machine, and the advice; None: it can.

    Args:
        version: of torch.
        cuda: version of CUDA that it is built for.
        is_cpu: torch is built for the CPU alone.
    """
    major = int((cuda or "0").split(".")[0])
    if not is_cpu and (major not in MINIMUM_DRIVERS or _library_cuda() >= major):
        return None
    driver, capability = driver_version(), None
    needed, branch = MINIMUM_DRIVERS.get(major, 0), _branch(driver)
    if is_cpu or branch is None or branch < needed:
        driver, capability = driver or _first_gpu()[0], _first_gpu()[1]
        branch = _branch(driver)
    if is_cpu:
        return f"torch {version} is built for the CPU alone", _install(version, driver, capability)
    if branch is None or branch >= needed:
        return None
    reason = f"the driver is {driver}, and torch {version} (CUDA {cuda}) needs {needed} or later"
    return reason, _install(version, driver, capability)


@cache
def _first_gpu() -> tuple[str | None, tuple[int, int] | None]:
    """Driver and compute capability of the first GPU; asked once for all runs of a sweep."""
    gpus = read_gpus()[0]
    return (gpus[0].driver, gpus[0].capability) if gpus else (None, None)


def _library_cuda() -> int:
    """Major version of CUDA that libcuda runs; 0: unknown.

    The library of cuda-compat, as in NVIDIA's containers, runs a later CUDA than the driver's own.
    """
    version = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000


def _in_one_line(error: BaseException) -> str:
    """Message of torch without its general advice, with its meaning."""
    text = str(error)
    said = re.search(r"Error \d+: [^\n]*", text)
    short = said[0] if said else re.split(r"\.? Please | - this may be |\n", text)[0]
    fault = fault_in(short)
    return short if fault is None else f"{short}: {fault.reason}"


def _install(version: str, driver: str | None, capability: tuple[int, int] | None) -> str:
    build = build_for(driver, capability)
    if build is None:
        of = "" if capability is None else f" and compute capability {_dotted(capability)}"
        return (
            f"There is no build of it for driver {driver}{of}: use another node, or have the driver updated"
        )
    return _pip_install(version, build.name)


def _pip_install(version: str, build: str) -> str:
    return (
        "Install the build that fits: "
        f"{sys.executable} -m pip install torch=={version.partition('+')[0]}+{build} "
        f"--index-url https://download.pytorch.org/whl/{build}"
    )


def _device_files() -> list[Path]:
    """Device files of GPUs that this process can open and its torch, if loaded, has code for."""
    torch: Any = sys.modules.get("torch")
    is_rocm = torch is None or getattr(torch.version, "hip", None) is not None
    files = [path for pattern in GPU_DEVICE_FILES for path in sorted(Path("/dev").glob(pattern))]
    return [
        path
        for path in files
        if os.access(path, os.R_OK | os.W_OK)  # a cgroup that forbids a device counts there
        and (path.name != "kfd" or is_rocm)  # also of a processor's own graphics
        and (path.name != "dxg" or has_driver())
    ]


def _branch(driver: str | None) -> int | None:
    found = re.match(r"\d+", driver or "")
    return int(found[0]) if found else None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
