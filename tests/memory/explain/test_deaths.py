"""Real deaths, one for each way to die: the evidence that the supervisor leaves explains them.

All cases are recorded (`test_recorded_deaths.py`); these die again each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_text import Golden
from tests.memory.deaths.cases import BLIND, PROGRAMS, read_case, read_cases
from tests.memory.deaths.cgroups import NoCgroup
from tests.memory.deaths.harness import run_case

LIVE = (
    "oom_main",
    "oom_worker",
    "oom_shmem_files",
    "parent_limit",
    "everything_killed",
    "shm_full_bus_error",
    "kill_from_outside",
    "worker_killed_from_outside",
    "terminated",
    "memory_error_by_ulimit",
    "cuda_oom_by_size",
    "ok_map_ten_times_the_limit",
    "ok_neighbour_cgroup_killed",
)


@pytest.mark.slow
@pytest.mark.privileged
@pytest.mark.parametrize("name", LIVE)
def test_real_death_is_explained(name: str, tmp_path: Path) -> None:
    try:
        ran = run_case(read_case(PROGRAMS / f"{name}.py"), tmp_path)
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
    "text",
    [
        "print()",
        "# /// case\n# kind = 'healthy'\n# limitmb = 3\n# ///\n",
        "# /// case\n# kind = 'ill'\n# ///\n",
        "# /// case\n# kind = 'death'\n# ///\n",
    ],
    ids=["no block", "unknown key", "unknown kind", "no verdict"],
)
def test_a_case_that_is_none(text: str, tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "case.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"\S") as error:
        read_case(path)
    golden.text(str(error.value))
