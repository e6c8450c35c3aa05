"""Deaths inside a real Slurm: `explain` reads the run's folder and what sacct says of job and steps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.local_slurm import Cluster
from tests.memory.deaths.cases import Case, read_cases
from tests.memory.deaths.harness import Ran
from tests.memory.deaths.slurm import live_and_die

pytestmark = [pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(900)]

CASES = [case for case in read_cases() if case.slurm]
POLLED = [case for case in CASES if "poll" in case.needs]
ALONE = [case for case in CASES if "alone" in case.needs]
TOGETHER = [case for case in CASES if case not in POLLED + ALONE]


@pytest.fixture(scope="module")
def under_way(
    request: pytest.FixtureRequest, slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ran]]]:
    """All cases that were asked for and do not disturb each other, at once: most of their time is waiting."""
    asked = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(len(TOGETHER)) as threads:
        yield {
            case.name: threads.submit(
                live_and_die, slurm_cluster, case, tmp_path_factory.mktemp(case.name) / "x"
            )
            for case in TOGETHER
            if case.name in asked
        }


@pytest.mark.parametrize("case", TOGETHER, ids=[case.name for case in TOGETHER])
def test_case(case: Case, under_way: dict[str, Future[Ran]]) -> None:
    check(under_way[case.name].result())


@pytest.mark.parametrize("case", ALONE, ids=[case.name for case in ALONE])
def test_case_that_disturbs_others(case: Case, slurm_cluster: Cluster, tmp_path: Path) -> None:
    try:
        check(live_and_die(slurm_cluster, case, tmp_path / "x"))
    finally:
        slurm_cluster.script("start")  # brings a killed node back


@pytest.mark.parametrize("case", POLLED, ids=[case.name for case in POLLED])
def test_case_on_a_polling_site(case: Case, polling_slurm_cluster: Cluster, tmp_path: Path) -> None:
    check(live_and_die(polling_slurm_cluster, case, tmp_path / "x"))


def check(ran: Ran) -> None:
    assert not ran.wrong, ran.report()
