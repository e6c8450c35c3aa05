"""Questions to Slurm: what of a user's environment they see."""

from __future__ import annotations

import pytest

from memory.sacct import run_client
from slurm.in_job import job
from slurm.submit.ask import ask

HIDES = (
    "SQUEUE_USERS",
    "SACCT_FORMAT",
    "SINFO_PARTITION",
    "SCANCEL_STATE",
    "SLURM_TIME_FORMAT",
    "SLURM_BITSTR_LEN",
)


@pytest.mark.parametrize(
    "told",
    [lambda: ask(["env"]), lambda: job.ask(["env"]).out, lambda: run_client(["env"], 10).out],
    ids=["submit", "in_job", "memory"],
)
def test_what_hides_or_formats_rows_is_left_out(told: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*HIDES, "SLURM_CONF", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "x")
    assert callable(told)
    names = {line.partition("=")[0] for line in told().splitlines()}
    assert not names & set(HIDES)
    assert {"SLURM_CONF", "SLURM_CLUSTERS"} <= names
