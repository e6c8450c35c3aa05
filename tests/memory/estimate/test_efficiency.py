"""Request and use of a run, from its outcome; the next request that would have fit."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from experiment_utils.quantities import parse_duration, parse_size
from memory.estimate.efficiency import (
    Efficiency,
    efficiency_line,
    efficiency_of,
    efficiency_so_far,
    time_to_ask,
)
from memory.record.ring import RingWriter
from memory.record.samples import Sample
from tests.golden_text import Golden

MB, GB = 1 << 20, 1 << 30
BEGAN = 1_700_000_000.0
IN_JOB = {
    "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_PER_TASK": "2",
    "SLURM_CPUS_ON_NODE": "4", "SLURM_JOB_START_TIME": str(int(BEGAN) - 60),
    "SLURM_JOB_END_TIME": str(int(BEGAN) - 60 + 7200),
}  # fmt: skip
GPU = {"busy_percent": 87.2, "power_w": 310.4, "peak_used_bytes": 41 * GB, "total_bytes": 80 * GB}


def outcome(**facts: Any) -> dict[str, Any]:
    """A run of 19 minutes in a job of 2 hours that began a minute before it."""
    usual = {
        "started_s": BEGAN, "ended_s": BEGAN + 1140, "exit_code": 0, "attempt": 1, "cpu_s": 866.4, "cpus": 8,
        "peak_unreclaimable_bytes": 512 * MB, "peak_own_bytes": 400 * MB, "limit_bytes": 4 * GB,
        "limit_at": "/slurm/job_7", "environment": IN_JOB, "gpu": None,
    }  # fmt: skip
    return usual | facts


def found(is_shared: bool = False, as_keys: bool = True, **facts: Any) -> Efficiency:
    known = efficiency_of(outcome(**facts), is_shared=is_shared, as_keys=as_keys)
    assert known is not None
    return known


def asked(*of: Efficiency) -> dict[str, str]:
    """The next request by option."""
    line = efficiency_line(of) or ""
    return dict(word.partition("=")[::2] for word in line.partition("; next: ")[2].split())  # type: ignore[misc]


def test_use_of_a_job() -> None:
    one = found()
    assert (one.asked_bytes, one.used_bytes, one.cores, one.busy_cores) == (4 * GB, 512 * MB, 2, 0.76)
    assert (one.used_s, one.limit_s) == (1200.0, 7200.0)
    assert asked(one) == {"slurm.mem": "768M", "slurm.time": "40"}
    assert asked(found(as_keys=False)) == {"--mem": "768M", "--time": "40"}
    assert time_to_ask(1200.0) == parse_duration("40") == 2400.0
    assert parse_size("768M") >= 1.15 * 512 * MB


def test_run_of_this_machine_asks_for_nothing() -> None:
    one = found(environment={}, limit_at="host", limit_bytes=16 * GB)
    assert (one.in_job, one.of_machine, one.used_bytes, one.cores) == (False, True, 400 * MB, 8)
    assert (one.used_s, one.limit_s) == (1140.0, None)
    assert asked(one) == {}


@pytest.mark.parametrize(
    ("facts", "next_"),
    [
        ({"exit_code": 1}, {}),
        ({"is_shared": True}, {}),
        ({"environment": IN_JOB | {"SLURM_JOB_START_TIME": str(int(BEGAN) - 4000)}}, {}),
        ({"attempt": 2}, {"slurm.mem": "768M"}),
        ({"peak_unreclaimable_bytes": 3 * GB + 400 * MB}, {"slurm.time": "40"}),
        ({"peak_unreclaimable_bytes": 4 * GB - MB, "ended_s": BEGAN + 4140}, {"slurm.mem": "4864M"}),
        ({"environment": IN_JOB | {"SLURM_JOB_END_TIME": str(int(BEGAN) + 400 * 86400)}},
         {"slurm.mem": "768M"}),
        ({"environment": {name: IN_JOB[name] for name in ("SLURM_JOB_ID", "SLURM_MEM_PER_NODE")}},
         {"slurm.mem": "768M"}),
    ],
)  # fmt: skip
def test_next_request_is_only_what_is_known_to_fit(facts: dict[str, Any], next_: dict[str, str]) -> None:
    assert asked(found(**facts)) == next_


def test_study_has_the_highest_of_each_and_a_request_that_fits_all() -> None:
    small, large = found(cpu_s=228.0), found(peak_unreclaimable_bytes=GB, ended_s=BEGAN + 3000)
    here = found(environment={}, limit_at="host", peak_own_bytes=30 * GB)
    assert asked(small, large, here) == {"slurm.mem": "1280M", "slurm.time": "90"}
    assert asked(small, large, found(exit_code=137)) == {}
    assert efficiency_line([]) is None


@pytest.mark.parametrize("damaged", [{"started_s": None}, {"ended_s": "now"}, {"ended_s": BEGAN - 1}])
def test_outcome_without_its_times_has_none(damaged: dict[str, Any]) -> None:
    assert efficiency_of(outcome(**damaged)) is None
    assert efficiency_of({}) is None


def test_values_of_another_kind_are_not_known() -> None:
    strange = {name: ["?"] for name in ("cpu_s", "cpus", "peak_unreclaimable_bytes", "gpu", "limit_bytes")}
    one = found(**strange, environment={"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "soon"})
    assert (one.used_bytes, one.cores, one.busy_cores, one.gpus, one.limit_s) == (None,) * 5
    assert asked(one) == {}


def test_reads_its_own_json() -> None:
    one = found(gpu=GPU)
    assert Efficiency.of_json(vars(one) | {"later": 1}) == one


def test_run_knows_its_own_at_its_end(tmp_path: Path) -> None:
    facts = {"pid": os.getpid(), "started_s": time.time() - 5, "attempt": 3, "cpus": 2, "limit_at": "host"}
    with RingWriter(tmp_path / "memory.ring", facts) as ring:
        ring.add(Sample(time.time(), unreclaimable_bytes=GB, limit_bytes=8 * GB, tree_anon_bytes=GB // 2))
        one = efficiency_so_far(tmp_path)
    assert one is not None
    assert (one.used_bytes, one.asked_bytes, one.attempt, one.is_done) == (GB // 2, 8 * GB, 3, True)
    assert one.busy_cores is not None
    assert one.busy_cores > 0
    with RingWriter(tmp_path / "memory.ring", facts | {"pid": 1}):
        assert efficiency_so_far(tmp_path) is None, "the ring is of another process"
    assert efficiency_so_far(tmp_path / "nowhere") is None


def test_lines(golden: Golden) -> None:
    here = {"environment": {}, "limit_at": "host", "limit_bytes": 16 * GB}
    of_gpu = {"gpu": GPU, "environment": IN_JOB | {"SLURM_GPUS_ON_NODE": "1"}}
    silent = of_gpu | {"gpu": GPU | {"busy_percent": None, "power_w": None}}
    cases = [
        [found()],
        [found(as_keys=False)],
        [found(**here)],
        [found(**of_gpu)],
        [found(**silent)],
        [found(**of_gpu | {"gpu": None})],
        [found(), found(cpu_s=228.0, peak_unreclaimable_bytes=GB)],
    ]
    golden.text("\n".join(efficiency_line(case) or "" for case in cases))
