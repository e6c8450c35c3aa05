"""The kernel's counts of its kills, before and after a run."""

from __future__ import annotations

import shutil
from typing import Any

from memory.supervision.counters import KillCounters

MB = 1 << 20
PID = 4_000_000


def test_v1_counts_kills_in_all_cgroups_of_the_job(tree: Any) -> None:
    """v1 counts a kill in the victim's own cgroup alone, which can be that of another step."""
    tree.membership("4:memory:/slurm/job_7/step_0/task_0\n", "/ /sys/fs/cgroup/memory cgroup rw,memory")
    folder = "sys/fs/cgroup/memory/slurm"
    tree.v1(folder)
    tree.v1(f"{folder}/job_7", limit=100 * MB)
    for step in ("step_0", "step_0/task_0", "step_1", "step_1/task_0"):
        tree.v1(f"{folder}/job_7/{step}")
    counters = KillCounters(str(tree.root))
    counters.note(PID)
    tree.v1(f"{folder}/job_7/step_1/task_0", kills=2)
    found = counters.facts("/slurm/job_7")
    assert (found["counters_before"]["oom_kill"], found["counters_after"]["oom_kill"]) == (0, 2)
    assert [(level["path"], level["limit_bytes"], level["oom_kill_after"]) for level in found["parents"]] == [
        ("/slurm/job_7/step_0/task_0", None, 0),
        ("/slurm/job_7/step_0", None, 0),
        ("/slurm/job_7", 100 * MB, 2),
        ("/slurm", None, 2),
    ]
    assert counters.facts(None)["counters_after"]["oom_kill"] == 0, "without a limit: of the run's own"


def test_v2_counts_and_missing_files(tree: Any) -> None:
    assert KillCounters(str(tree.root)).facts(None)["parents"] == []
    tree.membership("0::/job_7/task\n", "/ /sys/fs/cgroup cgroup2 rw")
    tree.v2("sys/fs/cgroup/job_7", limit=100 * MB)
    tree.v2("sys/fs/cgroup/job_7/task")
    counters = KillCounters(str(tree.root))
    counters.note(PID)
    tree.v2("sys/fs/cgroup/job_7", limit=100 * MB, kills=1)
    found = counters.facts("/job_7")
    assert (found["cgroup_version"], found["cgroup_path"]) == (2, "/job_7/task")
    assert found["counters_after"]["oom_kill"] == 1
    shutil.rmtree(tree.root / "sys")
    assert counters.facts("/job_7")["counters_after"] == {}


def test_cgroup_that_is_not_visible(tree: Any) -> None:
    tree.membership("4:memory:/docker/ab12\n", "")
    counters = KillCounters(str(tree.root))
    counters.note(PID)
    found = counters.facts("host")
    assert (found["unseen_cgroup"], found["cgroup_path"], found["counters_after"]) == (
        "/docker/ab12",
        None,
        {},
    )
