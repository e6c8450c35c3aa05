"""One-line reasons for errors of CUDA other than a lack of memory."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """An error of CUDA."""

    words: str
    """Part of its text in lower case (CUDA Runtime API, cudaGetErrorString)."""
    reason: str
    is_of_node: bool = True
    """Whether another node helps."""


_NAMED = "CUDA_LAUNCH_BLOCKING=1 makes the traceback in log.txt name the operation"
FAULTS = (
    Fault("device-side assert", f"a value is out of its range, such as a token id. {_NAMED}", False),
    Fault("illegal memory access", f"a kernel read or wrote outside of its memory. {_NAMED}", False),
    Fault("misaligned address", f"a kernel read or wrote a misaligned address. {_NAMED}", False),
    Fault("no kernel image", "this build of torch has no code for this GPU (docs/clusters.md, GPUs)", False),
    Fault("driver version is insufficient", "the driver is too old (docs/clusters.md, GPUs)", False),
    Fault(
        "busy or unavailable", "another process has the GPU to itself (compute mode exclusive): nvidia-smi"
    ),
    Fault("uncorrectable ecc", "the GPU's memory is faulty"),
    Fault("unspecified launch failure", "the GPU stopped, as one does that fell off the bus (Xid in dmesg)"),
    Fault("launch timed out", "a kernel ran longer than a GPU with a display allows"),
    Fault("illegal instruction", "the GPU met an invalid instruction"),
    Fault("hardware stack error", "the GPU is faulty"),
    Fault("system not yet initialized", "the node's fabric manager does not run"),
    Fault("unsupported display driver", "the driver was updated, and the node not restarted"),
    Fault("no cuda-capable device", "the GPU is gone"),
    Fault("invalid device ordinal", "the GPU is gone"),
    Fault("unknown error", "the driver failed"),
)


def fault_in(line: str) -> Fault | None:
    """The fault named in the first line of an error; torch's advice below it names others."""
    return next((fault for fault in FAULTS if fault.words in line.lower()), None)


def cuda_fault(error: BaseException) -> str | None:
    """One line for an error of CUDA, with its reason and advice; None for one that is not in `FAULTS`."""
    first = str(error).partition("\n")[0].strip()
    if not isinstance(error, RuntimeError) or not ("CUDA error" in first or "CUDA driver error" in first):
        return None
    fault = fault_in(first)
    if fault is None:
        return None
    return f"{first}: {fault.reason}" + (f". {elsewhere()}" if fault.is_of_node else "")


def elsewhere() -> str:
    """Advice for a fault of a node's GPU or driver."""
    if "SLURM_JOB_ID" not in os.environ:
        return "See: nvidia-smi"
    node = os.environ.get("SLURMD_NODENAME", "NODE")
    return f"Use another node (slurm.options='[--exclude={node}]') and report this one: nvidia-smi"
