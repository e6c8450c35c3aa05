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
    return build_of(torch_facts())


@cache
def torch_facts() -> dict[str, str]:
    """Return what version.py of the installed torch names, such as `__version__` and `cuda`; {}: no torch."""
    try:
        spec = find_spec("torch")
    except ValueError:  # a stand-in for torch that has no spec
        return {}
    places = spec.submodule_search_locations if spec is not None else None
    return facts_in(Path(next(iter(places)))) if places else {}


def facts_in(folder: Path) -> dict[str, str]:
    """Return what version.py of the torch in this folder names: `cuda = '13.0'`, not `hip = None`."""
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+)\b[^=\n]*= *(?:'|\")(.+?)(?:'|\")", text, re.MULTILINE))


def build_of(facts: dict[str, str]) -> str:
    """Return the build of the torch that names these facts."""
    if facts.get("hip") or facts.get("rocm"):
        return ROCM
    return CUDA if facts.get("cuda") or not facts else CPU
