"""Which build of torch is installed, read from its files: importing it takes seconds and 270 MB."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

CPU, CUDA, ROCM = "cpu", "cuda", "rocm"


@cache
def torch_build() -> str:
    """Return `cpu`, `cuda` or `rocm`: the build that this interpreter, and each run it starts, would import.

    Where torch is not found it is `cuda`, which is what its package index installs.
    """
    try:
        spec = find_spec("torch")
    except ValueError:  # a stand-in for torch that has no spec
        return CUDA
    places = spec.submodule_search_locations if spec is not None else None
    return build_in(Path(next(iter(places)))) if places else CUDA


def build_in(folder: Path) -> str:
    """Return the build of torch in this folder, from its version.py: `cuda = '13.0'`, `hip = None`."""
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        return CUDA
    named = dict(re.findall(r"^(\w+)\b[^=\n]*= *(?:'|\")(.+?)(?:'|\")", text, re.MULTILINE))
    if named.get("hip") or named.get("rocm"):
        return ROCM
    return CUDA if named.get("cuda") else CPU
