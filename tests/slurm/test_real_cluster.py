"""What a real Slurm says of itself, of bad requests, and the text of a plan against the one that was sent."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from recorded_slurm import planned, with_slurm
from tiny_run import tiny_config

from conf import Config
from conf.command_line.request import read_run
from conf.composing.compose import Composer
from experiment_utils.errors import UserError
from slurm.__main__ import main
from slurm.cluster import read_cluster
from slurm.records.submissions import submissions
from slurm.submit.cluster_plan import ID, SNAPSHOT, plan_for_cluster
from slurm.submit.resource_check import asked_of
from tests.local_slurm import Cluster

pytestmark = [pytest.mark.privileged, pytest.mark.slow, pytest.mark.timeout(900)]
GB = 1 << 30


@pytest.fixture(autouse=True)
def _its_clients(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in slurm_cluster.variables.items():
        monkeypatch.setenv(name, value)


def test_what_it_has() -> None:
    cluster = read_cluster()
    assert cluster.notes == ()
    assert cluster.default_partition is not None
    assert cluster.default_partition.name == "main"
    (kind,) = cluster.default_partition.kinds
    assert (kind.count, kind.cpus, kind.mem_bytes, dict(kind.gpus)) == (2, 4, 2 * GB, {"": 2})
    assert cluster.signals_on_preemption
    assert cluster.is_this_machine
    assert cluster.accounts == ["root"]


def test_written_site_file_plans_a_run(tmp_path: Path) -> None:
    assert main(["doctor", "--write", "--config-dir", str(tmp_path)]) == 0
    slurm = read_run(["slurm=mine"], Composer(tmp_path)).slurm
    assert (slurm.partition, slurm.account, slurm.gpus_per_node) == ("main", "root", 1)
    config = dataclasses.replace(tiny_config(tmp_path), slurm=slurm)
    planned(config)
    found = plan_for_cluster([config])
    assert found.refused == []
    assert "#SBATCH --gres=gpu:1" in found.scripts[0][1]


def test_doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--json", "--runs-dir", str(tmp_path)]) == 0
    plain = json.loads(capsys.readouterr().out)
    levels = {one["name"]: one["level"] for one in plain["findings"]}
    assert levels["sacct"] == levels["preemption"] == levels["arrays"] == "fine"


@pytest.mark.parametrize(
    ("values", "where", "says"),
    [
        ({"partition": "mian"}, "slurm.partition", "main"),
        ({"account": "rot"}, "slurm.account", "root"),
        ({"qos": "nromal"}, "slurm.qos", "normal"),
        ({"mem": 3 * GB}, "slurm.mem", "2.0 GB"),
        ({"nodes": 3}, "slurm.nodes", "has 2"),
        ({"cpus_per_task": 5}, "slurm.cpus_per_task", "at most 4"),
        ({"constraint": "fast"}, "slurm.constraint", "Invalid feature"),
        ({"gpus_per_node": 2, "gpu_type": "a100"}, "slurm.gpu_type", "a100"),
        ({"options": ["--licenses=nothing"]}, "slurm.options", "Invalid license"),
        ({"options": ["--nosuch"]}, "slurm.options", "unrecognized option"),
        ({"options": ["--nodelist=n9"]}, "slurm.options", "Invalid node name"),
    ],
)
def test_what_is_refused_before_anything_is_submitted(
    values: dict[str, object], where: str, says: str, tmp_path: Path
) -> None:
    config = tiny_config(tmp_path)
    plan = dataclasses.replace(planned(config), config=with_slurm(config, **{"mem": GB, **values}))
    with pytest.raises(UserError) as error:
        asked_of([plan], read_cluster())
    (problem,) = error.value.problems
    assert problem.where == where
    assert says in problem.what


def test_time_above_the_limit_of_the_partition_is_refused(tmp_path: Path, slurm_cluster: Cluster) -> None:
    """sbatch accepts it there (EnforcePartLimits=NO), and the job would wait forever."""
    config = with_slurm(tiny_config(tmp_path), mem=GB, time="2:00:00")
    plan = dataclasses.replace(planned(tiny_config(tmp_path)), config=config)
    slurm_cluster.say("scontrol", "update", "PartitionName=main", "MaxTime=1:00:00")
    try:
        with pytest.raises(UserError) as error:
            asked_of([plan], read_cluster())
    finally:
        slurm_cluster.say("scontrol", "update", "PartitionName=main", "MaxTime=UNLIMITED")
    assert [problem.where for problem in error.value.problems] == ["slurm.time"]
    asked_of([plan], read_cluster())


def test_nodes_that_are_away_now_are_waited_for(
    tmp_path: Path, slurm_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """`sbatch --test-only` says the same about them as about nodes that do not exist."""
    config = tiny_config(tmp_path)
    plan = planned(config)
    fits, too_large = (dataclasses.replace(plan, config=with_slurm(config, mem=mem)) for mem in (GB, 3 * GB))
    slurm_cluster.say("scontrol", "update", "NodeName=n[1-2]", "State=drain", "Reason=test")
    try:
        with pytest.raises(UserError) as error:
            asked_of([too_large], read_cluster())
        assert [problem.where for problem in error.value.problems] == ["slurm.mem"]
        with caplog.at_level("WARNING", "slurm"):
            (asked,) = asked_of([fits], read_cluster()).values()
        assert len(caplog.records) == 1
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH --mem={asked.options['mem']}\ntrue\n")
        job = slurm_cluster.say("sbatch", "--parsable", f"--chdir={tmp_path}", str(script))
        assert slurm_cluster.row(job, "%T") == "PENDING"
        slurm_cluster.say("scancel", job)
    finally:
        slurm_cluster.say("scontrol", "update", "NodeName=n[1-2]", "State=resume")


def test_the_text_of_a_plan_is_the_text_that_is_sent(tmp_path: Path, slurm_cluster: Cluster) -> None:
    from conf.command_line.request import SLURM_LAUNCHER, Launcher
    from slurm.submit.submit_runs import check_and_plan, submit_plans

    configs: list[Config] = [
        with_slurm(dataclasses.replace(tiny_config(tmp_path), seed=seed), mem=GB // 2, options=["--hold"])
        for seed in (0, 1)
    ]
    planned(configs[0])
    ((_, text),) = plan_for_cluster(configs).scripts
    launcher = Launcher(SLURM_LAUNCHER)
    plans, cluster = check_and_plan(configs, launcher, is_open=False)
    submit_plans(plans, cluster, launcher, "a test")
    assert plans[0].folder is not None
    study = plans[0].folder.parent
    (sent,) = submissions(study)
    try:
        real = (study / ".submissions" / sent.id / "submitit" / "0.sh").read_text()
        assert text.replace(ID, sent.id).replace(SNAPSHOT, sent.snapshot or "") == real
        again = plan_for_cluster(configs)
        assert [run.state for run in again.runs] == ["queued", "queued"]
        assert again.scripts == []
    finally:
        subprocess.run(["scancel", sent.arrays[0].job_id or ""], check=True)
