"""The installed build of torch is known from its files, and a process costs what that build costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT

from memory.estimate import constants
from memory.estimate.torch_build import CPU, CUDA, ROCM, build_of, facts_in, torch_build


@pytest.mark.parametrize(
    ("cuda", "hip", "build"),
    [("None", "None", CPU), ("'13.0'", "None", CUDA), ('"12.6"', "None", CUDA), ("None", "'7.0'", ROCM)],
)
@pytest.mark.parametrize("annotated", [True, False])
def test_build_is_read_from_version_py(
    tmp_path: Path, cuda: str, hip: str, build: str, annotated: bool
) -> None:
    kind = ": Optional[str]" if annotated else ""
    lines = ("__version__ = '2.13.0'", "debug = False", f"cuda{kind} = {cuda}", f"hip{kind} = {hip}")
    (tmp_path / "version.py").write_text("\n".join(lines) + "\n")
    assert build_of(facts_in(tmp_path)) == build


def test_build_that_is_not_found_is_the_one_of_the_package_index(tmp_path: Path) -> None:
    assert build_of(facts_in(tmp_path)) == CUDA


@pytest.mark.slow
def test_installed_build_is_known_without_importing_torch() -> None:
    code = (
        "import sys; from memory.estimate.torch_build import torch_build; print(torch_build())\n"
        "assert 'torch' not in sys.modules\n"
        "import torch; print('cuda' if torch.version.cuda else 'rocm' if torch.version.hip else 'cpu')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
    )
    said, true = done.stdout.split()
    assert said == true == torch_build()


@pytest.mark.parametrize(("build", "more"), [(CPU, False), (CUDA, True), (ROCM, True)])
def test_constant_is_that_of_the_build(monkeypatch: pytest.MonkeyPatch, build: str, more: bool) -> None:
    monkeypatch.setattr(constants, "torch_build", lambda: build)
    base = constants.FRAMEWORK_BASE
    assert (base.in_bytes > base.value) is more
    assert constants.ENTRY.in_bytes == constants.ENTRY.value, "no torch in it"
