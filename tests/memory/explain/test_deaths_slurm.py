"""Deaths inside a real Slurm, explained from the run's folder and what sacct says of job and steps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.local_slurm import Cluster
from tests.memory.deaths.cases import PROGRAMS, read_case
from tests.memory.deaths.harness import Ran
from tests.memory.deaths.slurm import live_and_die

pytestmark = [pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(900)]

KILLED_BY_SLURM = ("slurm_oom_in_a_step", "slurm_scancel_kill", "slurm_timeout")


@pytest.fixture(scope="module")
def under_way(
    slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ran]]]:
    """All jobs together: most of their time is waiting."""
    cases = [read_case(PROGRAMS / f"{name}.py") for name in KILLED_BY_SLURM]
    with ThreadPoolExecutor(len(cases)) as threads:
        yield {
            case.name: threads.submit(
                live_and_die, slurm_cluster, case, tmp_path_factory.mktemp(case.name) / "x"
            )
            for case in cases
        }


@pytest.mark.parametrize("name", KILLED_BY_SLURM)
def test_job_killed_by_slurm_is_explained(name: str, under_way: dict[str, Future[Ran]]) -> None:
    check(under_way[name].result())


def test_job_killed_by_poll_is_explained(polling_slurm_cluster: Cluster, tmp_path: Path) -> None:
    check(live_and_die(polling_slurm_cluster, read_case(PROGRAMS / "slurm_rss_polling.py"), tmp_path / "x"))


def check(ran: Ran) -> None:
    assert not ran.wrong, ran.report()
