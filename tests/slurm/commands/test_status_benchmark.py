"""The benchmark of `status` measures what it says: as many runs, in those states, one call of each client."""

from __future__ import annotations

from benchmarks.slurm_status import SHARES, status_of_many


def test_each_client_is_asked_once() -> None:
    found = status_of_many(runs=40, rounds=1)
    assert found["calls"] == {"squeue": 1, "sacct": 1}
    assert sum(found["states"].values()) == found["runs"] == 40
    assert all(found["states"][state] for state in SHARES)
