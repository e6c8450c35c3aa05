"""A job id, as squeue shows it, is taken for the runs that the job is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_studies import FakeSlurm, MadeStudy

from experiment_utils.errors import UserError
from slurm.arguments import find_job, find_run, study_and_names
from tests.golden_text import Golden

NAMES = ["32d-a", "32d-b", "32d-c"]


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> Path:
    MadeStudy(place / "runs" / "other", ["32d-x"], array={"job_id": "7"})
    return MadeStudy(place / "runs" / "sweep", NAMES).folder


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("4242", NAMES),
        ("4242_1", NAMES[1:2]),
        ("4242_[1-2%5]", NAMES[1:]),
        ("4242_[0,2]", [NAMES[0], NAMES[2]]),
    ],
)
def test_runs_of_a_job(study: Path, given: str, names: list[str]) -> None:
    found = find_job(given)
    assert found is not None
    assert (found[0].resolve(), found[1]) == (study, names)
    assert study_and_names(given)[1] == names


@pytest.mark.parametrize("given", ["4243", "4242_3", "4242_x", "4242_[1", "sweep"])
def test_what_is_no_job_of_ours(study: Path, given: str) -> None:
    assert find_job(given) is None
    with pytest.raises(UserError):
        find_run(given)


def test_a_run_is_found_by_its_job(study: Path, golden: Golden) -> None:
    assert find_run("4242_1").resolve() == study / NAMES[1]
    with golden.refused("several-runs"):
        find_run("4242")
