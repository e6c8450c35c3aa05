"""Questions to Slurm: what of a user's environment they see."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.accounting.sacct import Answer, run_client, why_not
from slurm.cluster import current_job as job
from slurm.queue.slurm_client import ask
from tests.golden_text import Golden

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
        monkeypatch.setenv(name, __file__)
    assert callable(told)
    names = {line.partition("=")[0] for line in told().splitlines()}
    assert not names & set(HIDES)
    assert {"SLURM_CONF", "SLURM_CLUSTERS"} <= names


def test_settings_that_are_not_there_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Clients look for another source of them for minutes."""
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    wrong = f"SLURM_CONF={tmp_path / 'slurm.conf'}"
    assert run_client(["sleep", "60"], 10).error.startswith(wrong)
    assert run_client(["no-such-client"], 10).code == 127, "that no Slurm is here goes before"
    with golden.refused("no-answer"):
        ask(["sleep", "60"])


def test_settings_that_are_broken_are_told_with_their_place(golden: Golden) -> None:
    said = (
        'scontrol: error: Parse error in file /etc/slurm.conf line 1: "Bro ken"\n'
        "scontrol: fatal: Unable to process configuration file\n"
    )
    golden.text(why_not(Answer(1, error=said), "scontrol", 10))
