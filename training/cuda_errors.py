"""One-line reasons for errors of CUDA that are neither the program's nor for want of memory."""

from __future__ import annotations

_NODE = "Resume on another node (slurm.options=[--exclude=NODE])"
_FAULTS = (
    (
        "device-side assert",
        "an operation met a value out of its range, such as a token id beyond the vocabulary. "
        "CUDA_LAUNCH_BLOCKING=1 makes the traceback name it",
    ),
    (
        "illegal memory access",
        "a kernel read or wrote outside of its memory. CUDA_LAUNCH_BLOCKING=1 names it",
    ),
    ("misaligned address", "a kernel read or wrote a misaligned address. CUDA_LAUNCH_BLOCKING=1 names it"),
    ("no kernel image", "this build of torch has no code for this GPU (docs/clusters.md, GPUs)"),
    ("busy or unavailable", "another process has the GPU to itself (compute mode exclusive): nvidia-smi"),
    ("uncorrectable ecc", f"the GPU's memory is faulty. {_NODE}, and report this one"),
    (
        "unspecified launch failure",
        f"the GPU stopped, as one that fell off the bus does (Xid in dmesg). {_NODE}",
    ),
    ("launch timed out", "a kernel ran longer than this GPU's display allows. Use a GPU without a display"),
    ("illegal instruction", f"the GPU met an invalid instruction, often a fault of the device. {_NODE}"),
    ("hardware stack error", f"the GPU is faulty. {_NODE}, and report this one"),
    ("system not yet initialized", f"the node's fabric manager does not run. {_NODE}, and report this one"),
    ("unsupported display driver", f"the driver was updated and the node not restarted. {_NODE}"),
    (
        "driver version is insufficient",
        "the driver is too old for this build of torch (docs/clusters.md, GPUs)",
    ),
    ("no cuda-capable device", f"the GPU is gone. {_NODE}"),
    ("invalid device ordinal", f"the GPU is gone. {_NODE}"),
    ("unknown error", f"the driver failed. {_NODE}"),
)
"""Texts of cudaGetErrorString, in lower case, to reasons. Source: CUDA Runtime API, "cudaError"."""


def cuda_fault(error: BaseException) -> str | None:
    """The first line of an error of CUDA and its reason; None of any other error, and of a lack of memory."""
    if not isinstance(error, RuntimeError):
        return None
    text = str(error)
    if "CUDA error" not in text and "CUDA driver error" not in text:
        return None
    reason = next((reason for words, reason in _FAULTS if words in text.lower()), None)
    first = text.partition("\n")[0].strip()
    return None if reason is None else f"{first}: {reason}"
