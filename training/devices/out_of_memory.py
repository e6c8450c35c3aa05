"""Errors of a GPU that is out of memory: recognize them, list what held the memory, advise."""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conf import AUTO
from memory import format_bytes
from memory.estimate.step_reduction import WORTH, smaller_micro_batch
from memory.measure.cuda_allocator import Gpu, read_gpu
from training.attempt.run_files import read_run, read_status

_BARE = "CUDA error: out of memory"
_WORDS = re.compile(
    rf"{_BARE}|CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_ALLOC_FAILED"
)
"""Texts of other errors than torch.OutOfMemoryError: the driver's, and of libraries without a handle."""
_STAGES_OF_STEPS = ("first_step", "train", "evaluate", "finish")
"""Stages in which a smaller step needs less memory."""
_NEIGHBOURS = 0.25
"""Share of the device outside torch from which other processes are named: a CUDA context takes less."""


def is_device_oom(error: BaseException) -> bool:
    """Return whether the error says that the GPU, and not the host's page-locked memory, is out of memory."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return False
    if isinstance(error, torch.OutOfMemoryError):
        return True
    found = _WORDS.search(str(error))
    return found is not None and not (found[0] == _BARE and _locks_pages(error))


def _locks_pages(error: BaseException) -> bool:
    """Return whether it was raised where pages of the host are locked: cudaHostAlloc has the same words."""
    innermost = traceback.extract_tb(error.__traceback__)[-1:]
    return any("pin_memory" in f"{frame.name} {frame.line}" for frame in innermost)


def came_out_of(error: BaseException, method_of: object) -> bool:
    """Return whether a method of this object was running when the error was raised."""
    return any(frame.f_locals.get("self") is method_of for frame, _ in traceback.walk_tb(error.__traceback__))


def moves_weights(error: BaseException) -> bool:
    """Return whether an optimizer raised it: activations are freed by then, some weights may have moved."""
    optimizer: Any = sys.modules["torch"].optim.Optimizer
    frames = traceback.walk_tb(error.__traceback__)
    return any(isinstance(frame.f_locals.get("self"), optimizer) for frame, _ in frames)


def release(error: BaseException) -> None:
    """Free what the frames of an error hold, such as activations, and give unused memory to the driver."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen.__traceback__, seen = None, seen.__context__
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def reason_of(error: BaseException, folder: Path) -> str:
    """Describe in one line what holds the GPU's memory, and what to type.

    Args:
        error: its frames still hold what the step held.
        folder: of the run, whose run.json has the estimates.
    """
    found = _WORDS.search(str(error))
    words = "CUDA out of memory" + (f" ({found[0]})" if found is not None and found[0] != _BARE else "")
    where = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
    gpu = read_gpu()
    held = "" if gpu is None else f". Of {format_bytes(gpu.total_bytes)}: {', '.join(_parts(gpu))}"
    return f"{type(error).__name__}: {words}{where}{held}. {_advice(error, folder, gpu)}"


def _parts(gpu: Gpu) -> Iterator[str]:
    from memory.attribute import attribute

    names = {"saved": "saved for the backward pass", "tensors": "other tensors"}
    of_device = [kind for kind in attribute().kinds if kind["where"].startswith("cuda")]
    for kind in of_device:
        yield f"{names.get(kind['kind'], kind['kind'])} {format_bytes(kind['bytes'])}"
    rest = gpu.allocated_bytes - sum(kind["bytes"] for kind in of_device)
    amounts = {
        "held outside Python": rest if rest > 0 else None,
        "reserved by torch and unused": gpu.unused_bytes,
        "outside torch (CUDA context, libraries, other processes)": gpu.outside_bytes,
        "free": gpu.free_bytes,
    }
    yield from (f"{name} {format_bytes(amount)}" for name, amount in amounts.items() if amount is not None)


def _advice(error: BaseException, folder: Path, gpu: Gpu | None) -> str:
    if gpu is not None and (gpu.outside_bytes or 0) > _NEIGHBOURS * gpu.total_bytes:
        return "Other processes hold a good part of it (nvidia-smi): take a GPU that is free"
    run, stage = read_run(folder), read_status(folder).get("stage")
    is_of_step = stage in _STAGES_OF_STEPS and not moves_weights(error)
    override = next(_overrides(run), None) if is_of_step else None
    return "Take a smaller model= or a larger GPU" if override is None else f"Try {override}"


def _overrides(run: Mapping[str, Any]) -> Iterator[str]:
    """Settings that make a step need less, the cheapest first. run: run.json."""
    memory, micro = run.get("memory") or {}, run.get("micro_batch")
    training = (run.get("config") or {}).get("training") or {}
    if isinstance(micro, int) and micro > 1:
        if training.get("micro_batch") == AUTO:
            yield "the same command again: micro_batch=auto takes a smaller one"
        yield f"training.micro_batch={smaller_micro_batch(micro)}"
    now = memory.get("gpu_bytes") or 0
    for override, estimate in (memory.get("savings") or {}).items():
        if "micro_batch" not in override and estimate["gpu_bytes"] <= WORTH * now:
            yield override
