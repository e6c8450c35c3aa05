"""Job id in sbatch's answer, whatever a site's sbatch prints besides."""

from __future__ import annotations

import pytest
from fake_slurm import FakeSlurm

from slurm.queue.send import job_id_of
from tests.slurm.submit.conftest import Type


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        ("4242\n", "4242"),
        ("4242;cluster-a\n", "4242"),
        ("your last job 7 used 3% of its CPUs\njob 7\n4242\n", "4242"),
        ("Submitted batch job 4242\n", "4242"),
        ("Submitted batch job 7 is what we print first\nSubmitted batch job 4242 on cluster a\n", "4242"),
        ("job 7\n", None),
        ("", None),
    ],
)
def test_job_id_is_read_from_its_own_line(answer: str, job: str | None) -> None:
    assert job_id_of(answer) == job


def test_a_banner_of_the_site_is_no_job(type_: Type, cluster: FakeSlurm) -> None:
    cluster.tell("banner", "Welcome. Your last job 7 has ended.\njob 7\n")
    assert type_("seed=0") == 0
    assert len(cluster.pending) == 1
    assert type_("seed=0") == 0
    assert len(cluster.pending) == 1
