"""Deaths and healthy but alarming runs, each made for real: `explain` must tell which is which, and why."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.memory.deaths.cases import BLIND, Case, read_case, read_cases
from tests.memory.deaths.cgroups import NoCgroup, version_here
from tests.memory.deaths.harness import run_case

CASES = [case for case in read_cases() if not case.slurm]


@pytest.mark.slow
@pytest.mark.privileged
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, tmp_path: Path) -> None:
    if "torch" in case.needs and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if "v2" in case.needs and version_here() != 2:
        pytest.skip("this machine counts memory by cgroup v1; tests/memory/v2_guest.py runs it in a guest")
    try:
        ran = run_case(case, tmp_path)
    except NoCgroup as error:
        pytest.skip(str(error))
    except PermissionError as error:
        pytest.skip(f"not allowed here: {error}")
    assert not ran.misfire(), ran.report()
    assert not ran.wrong, ran.report()


def test_there_are_enough_of_both() -> None:
    cases = read_cases()
    assert sum(case.kind == "death" for case in cases) >= 20
    assert sum(case.kind == "healthy" for case in cases) >= 20
    assert all(case.what for case in cases)


def test_the_example_for_others_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text((BLIND / "README.md").read_text().split("```python\n")[1].split("```")[0])
    case = read_case(path)
    assert (case.kind, case.limit_mb) == ("death", 150)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("print()", "no block"),
        ("# /// case\n# kind = 'healthy'\n# limitmb = 3\n# ///\n", "unknown limitmb"),
        ("# /// case\n# kind = 'ill'\n# ///\n", '"death" or "healthy", not \'ill\''),
        ("# /// case\n# kind = 'death'\n# ///\n", "needs its verdict"),
    ],
)
def test_a_case_that_is_none(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_case(path)
