"""Checks of data, limits and folders that a run needs on its node."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
from recorded_slurm import planned, with_slurm
from tiny_run import tiny_config

from slurm.cluster import Cluster
from slurm.cluster.reachability import carried_limits, local_folders, other_python, unreachable
from tests.golden_text import Golden


def test_what_a_node_cannot_reach(tmp_path: Path, golden: Golden) -> None:
    setup = ["source /no/such/venv/bin/activate", ". $HOME/env", "module load x", "echo 'torn"]
    found = unreachable([planned(with_slurm(tiny_config(tmp_path), setup=setup, offline=True))])
    assert [problem.where for problem in found] == ["slurm.setup"] * 2
    golden.text("\n".join(map(str, found)))


def test_limits_of_the_shell_that_hold_for_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    typed = {resource.RLIMIT_CPU: 25, resource.RLIMIT_AS: 8 << 30}
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda which: (typed.get(which, unlimited),) * 2)
    config = tiny_config(tmp_path)
    plan = planned(config)
    (warning,) = carried_limits([plan], Cluster())
    golden.text(warning)
    assert carried_limits([planned(with_slurm(config, options=["--propagate=NONE"]))], Cluster()) == []
    for settings in ({"PropagateResourceLimits": "NONE"}, {"PropagateResourceLimitsExcept": "CPU,AS"}):
        assert carried_limits([plan], Cluster(settings=settings)) == []


def test_an_environment_that_the_setup_activates_is_not_the_python_that_runs(tmp_path: Path) -> None:
    setup = ["module load x", "source /venvs/a/bin/activate", f"source {sys.prefix}/bin/activate"]
    (warning,) = other_python([planned(with_slurm(tiny_config(tmp_path), setup=setup))])
    assert "/venvs/a/bin/activate" in warning
    assert sys.executable in warning


def test_folders_that_other_machines_do_not_see(tmp_path: Path, golden: Golden) -> None:
    folders = [("the code", Path("/usr/lib")), ("runs_dir", tmp_path), ("the set", Path("/dev/shm/x"))]
    golden.text("\n".join(local_folders(folders, Cluster())))
    here = Cluster(settings={"SlurmctldHost[0]": "box(127.0.0.1)"})
    assert local_folders(folders, here) == []
