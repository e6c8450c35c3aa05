"""What the cluster would say no to is said before: everything at once, with what there is instead."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_slurm import planned, recorded, with_slurm
from tiny_run import tiny_config

from memory.accounting.sacct import Answer
from slurm.cluster import Cluster, ask
from slurm.cluster.reachability import carried_limits, of_this_machine_alone, other_python, unreachable
from slurm.cluster.rejections import problems
from slurm.cluster.sbatch_errors import directives, is_unanswered, meaning
from tests.golden_text import Golden

GB = 1 << 30


def refused(folder: Path, cluster: Cluster, **values: Any) -> dict[str, str]:
    """Config path to what is said of it."""
    config = with_slurm(tiny_config(folder), **{"mem": GB, **values})
    plan = planned(tiny_config(folder))
    found = problems([(config, ask(config, plan, cluster))], cluster)
    said_once = [problem.where for problem in found if problem.where != "slurm.options"]
    assert len(set(said_once)) == len(said_once)
    return {problem.where: problem.what for problem in found}


def lines(found: dict[str, str]) -> str:
    return "\n".join(f"{where}: {what}" for where, what in found.items())


def test_what_the_cluster_takes_is_not_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, recorded("20.11")) == {}
    assert (
        refused(tmp_path, recorded("20.11"), partition="batch", account="waterlab", qos="long", nodes=16)
        == {}
    )
    wanted = {"gpus_per_node": 4, "gpu_type": "V100", "constraint": "v100-32g", "mem": 373 * GB}
    assert refused(tmp_path, recorded("20.11"), partition="scavenge", cpus_per_task=10, **wanted) == {}


def test_everything_at_once(tmp_path: Path, golden: Golden) -> None:
    found = refused(
        tmp_path, recorded("20.11"), account="waterlap", qos="lang", nodes=17, mem=200 * GB, time="4-0",
        cpus_per_task=50, gpus_per_node=1, constraint="skylakes", options=["--array=1-3", "--mem=3G", "huh"],
    )  # fmt: skip
    keys = (
        "account",
        "qos",
        "nodes",
        "mem",
        "time",
        "cpus_per_task",
        "gpus_per_node",
        "constraint",
        "options",
    )
    assert set(found) == {f"slurm.{key}" for key in keys}
    assert "slurm.time=3-00:00:00" in found["slurm.time"]
    golden.text(lines(found))


def test_time_without_end_is_more_than_any_limit(tmp_path: Path) -> None:
    found = refused(tmp_path, recorded("20.11"), qos="lang", time="UNLIMITED")
    assert "slurm.time=3-00:00:00" in found["slurm.time"]


def test_cores_of_runs_side_by_side(tmp_path: Path, golden: Golden) -> None:
    """The key that was typed is the one that is told."""
    found = refused(tmp_path, recorded("20.11"), pack=50)
    golden.text(lines(found))
    assert "slurm.cpus_per_task" in refused(tmp_path, recorded("20.11"), pack=2, cpus_per_task=50)


def test_runs_that_share_a_job_have_one_rank(tmp_path: Path, golden: Golden) -> None:
    """A second task would start each of them a second time, or wait for a rank that never comes."""
    cluster = recorded("20.11")
    for values in ({"pack": 2}, {"workers": 1}):
        found = refused(tmp_path, cluster, tasks_per_node=2, **values)
        golden.text(lines(found))
        assert "slurm.nodes" in refused(tmp_path, cluster, nodes=2, **values)
        assert refused(tmp_path, cluster, **values) == {}
        two_gpus = {"gpus_per_node": 2, "partition": "scavenge"}
        assert refused(tmp_path, cluster, **two_gpus, **values) == {}, "auto is one then"


def test_unknown_partition(tmp_path: Path, golden: Golden) -> None:
    for version, partition in (("20.11", "bach"), ("23.11", None)):
        found = refused(tmp_path, recorded(version), partition=partition)
        assert list(found) == ["slurm.partition"]
        golden.text(lines(found))


def test_of_several_partitions_one_is_enough(tmp_path: Path) -> None:
    assert refused(tmp_path, recorded("20.11"), partition="batch,scavenge", gpus_per_node=1) == {}
    assert "slurm.gpus_per_node" in refused(tmp_path, recorded("20.11"), partition="batch", gpus_per_node=1)


def test_gpus_by_type_and_number(tmp_path: Path, golden: Golden) -> None:
    cluster = recorded("23.11")
    assert refused(tmp_path, cluster, partition="gpu", gpus_per_node=4) == {}
    assert "types: a100 nvidia_a100_1g.5gb" in str(
        refused(tmp_path, cluster, partition="gpu", gpus_per_node=1, gpu_type="h100")["slurm.gpu_type"]
    )
    found = refused(tmp_path, cluster, partition="gpu", gpus_per_node=8, gpu_type="a100", cpus_per_task=1)
    golden.text(lines(found))
    assert (
        "slurm.gpus_per_node=1"
        in refused(tmp_path, cluster, partition="gpu", gpu_type="a100")["slurm.gpu_type"]
    )


def test_no_node_has_all_of_it(tmp_path: Path, golden: Golden) -> None:
    wanted = {"partition": "gpu", "gpus_per_node": 4, "constraint": "plain", "mem": 700 * GB}
    found = refused(tmp_path, recorded("23.11"), **wanted)
    golden.text(lines(found))
    assert "8 x 96 CPUs, 375 GB, 4 GPU" in found["slurm.partition"]


def test_who_may_use_a_partition(tmp_path: Path, golden: Golden) -> None:
    for partition, account in (("a100dl", "m2_water"), ("smallcpu", "ki-team")):
        found = refused(tmp_path, recorded("24.11"), partition=partition, account=account, qos="smallcpu")
        assert {"slurm.account", "slurm.qos"} <= set(found)
        golden.text(lines(found))


def test_time_that_an_account_or_a_quality_of_service_does_not_allow(tmp_path: Path, golden: Golden) -> None:
    for wanted in ({"partition": "scavenge", "time": "4-0"}, {"account": "teaching", "time": "2-0"}):
        found = refused(tmp_path, recorded("20.11"), **wanted)
        assert list(found) == ["slurm.time"]
        golden.text(lines(found))
    assert refused(tmp_path, recorded("20.11"), partition="scavenge", qos="long", time="4-0") == {}


def test_a_quality_of_service_that_allows_more_time_goes_before_the_account(tmp_path: Path) -> None:
    """Slurm 22.05.8 starts such a job."""
    assert refused(tmp_path, recorded("20.11"), account="teaching", qos="normal", time="2-0") == {}


def test_time_that_the_quality_of_service_of_a_partition_does_not_allow(
    tmp_path: Path, golden: Golden
) -> None:
    qos = Answer(
        0, "Name|MaxWall|MaxJobsPU|MaxSubmitPU|PreemptMode\nnormal||||cluster\nsmallcpu|02:00:00|||cluster\n"
    )
    golden.text(lines(refused(tmp_path, recorded("24.11", qos=qos), time="3h")))


def test_a_partition_that_is_down_and_one_for_larger_jobs(tmp_path: Path, golden: Golden) -> None:
    cluster = recorded("23.02")
    drained = replace(cluster.partitions["normal"], is_up=False)
    cluster = replace(cluster, partitions={**cluster.partitions, "normal": drained})
    found = refused(tmp_path, cluster, partition="normal")
    assert set(found) == {"slurm.nodes", "slurm.partition"}
    golden.text(lines(found))


@pytest.mark.parametrize("missing", ["config", "partitions", "nodes", "associations", "qos"])
def test_what_is_not_known_is_not_judged(tmp_path: Path, missing: str) -> None:
    cluster = recorded("20.11", **{missing: Answer(1, error="no")})
    wanted = {
        "mem": 10**15,
        "time": "90-0",
        "account": "x",
        "qos": "x",
        "nodes": 10**6,
        "cpus_per_task": 10**4,
    }
    found = refused(tmp_path, cluster, partition="batch", **wanted)
    not_judged = {
        "config": set(),
        "partitions": {"slurm.time"},
        "nodes": {"slurm.mem", "slurm.cpus_per_task"},
        "associations": {"slurm.account"},
        "qos": {"slurm.qos"},
    }
    assert {
        "slurm.account",
        "slurm.qos",
        "slurm.time",
        "slurm.nodes",
        "slurm.mem",
        "slurm.cpus_per_task",
    } - set(found) == not_judged[missing]


def test_nothing_is_known_without_slurm(tmp_path: Path) -> None:
    assert refused(tmp_path, Cluster(), partition="x", account="y", gpus_per_node=99) == {}


def test_options_that_have_a_key_or_are_ours(golden: Golden) -> None:
    from slurm.cluster.options import read_options

    lines = ["--mem=3G -t 4:00:00", "-a 1-3", "--exclusive", "--gres gpu:1", "-w n1", "'"]
    options, wrong = read_options(lines)
    assert options == {"exclusive": True, "gres": "gpu:1", "nodelist": "n1"}
    told = [problem.what for problem in wrong]
    assert any("slurm.parallel=N" in what for what in told)
    golden.text("\n".join(told))


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified\n", "slurm.partition"),
        ("allocation failure: Invalid account or account/partition combination specified\n", "slurm.account"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification\n", "slurm.qos"),
        ("allocation failure: Requested time limit is invalid (missing or too much)\n", "slurm.time"),
        ("sbatch: error: Memory specification can not be satisfied\n", "slurm.mem"),
        ("allocation failure: Requested node configuration is not available\n", "slurm.partition"),
        ("sbatch: error: Invalid generic resource (gres) specification\n", "slurm.gpus_per_node"),
        ("sbatch: error: Invalid feature specification\n", "slurm.constraint"),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
         "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", "slurm"),
        ("sbatch: unrecognized option '--exclusiv'\nTry \"sbatch --help\" for more\n", "slurm.options"),
        ("sbatch: error: something new\n", "slurm"),
    ],
)  # fmt: skip
def test_words_of_sbatch_become_the_key_they_are_about(said: str, where: str) -> None:
    problem = meaning(said, {"qos": "fast", "time": "4:00:00"})
    assert problem.where == where
    assert "error:" not in problem.what
    assert said.splitlines()[0].rpartition(": ")[2] in problem.what
    if where == "slurm.qos":
        assert problem.what.startswith("fast: ")


def test_no_answer_is_no_refusal() -> None:
    """Texts of slurm_errno.c: after which of them may slurmctld have the request all the same?"""
    for said in (
        "Socket timed out on send/recv operation", "Zero Bytes were transmitted or received",
        "Unable to contact slurm controller (send failure)", "Message receive failure",
        "Unable to contact slurm controller (shutdown failure)", "Connection reset by peer",
        "Header lengths are longer than data received",
    ):  # fmt: skip
        assert is_unanswered(f"sbatch: error: Batch job submission failed: {said}\n", 1), said
    for said in (
        "Unable to contact slurm controller (connect failure)", "Connection refused",
        "Invalid qos specification", "Unspecified error",
        "Requested time limit is invalid (missing or exceeds some limit)",
    ):  # fmt: skip
        assert not is_unanswered(f"sbatch: error: Batch job submission failed: {said}\n", 1), said
    assert is_unanswered("", -9)


def test_lines_of_a_script() -> None:
    assert directives({"mem": "9G", "requeue": True, "comment": "a b"}) == (
        "#SBATCH --mem=9G\n#SBATCH --requeue\n#SBATCH --comment='a b'\n"
    )


def test_what_a_node_cannot_reach(tmp_path: Path, golden: Golden) -> None:
    setup = ["source /no/such/venv/bin/activate", ". $HOME/env", "module load x", "echo 'torn"]
    plan = planned(with_slurm(tiny_config(tmp_path), setup=setup, offline=True))
    told = [str(problem) for problem in unreachable([plan])]
    assert len(told) == 2
    golden.text("\n".join(told))


def test_limits_of_the_shell_that_go_with_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def getrlimit(which: int) -> tuple[int, int]:
        return (25, 25) if which == resource.RLIMIT_CPU else (resource.RLIM_INFINITY,) * 2

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    config = tiny_config(tmp_path)
    plan = planned(config)
    (warning,) = carried_limits([plan], Cluster())
    golden.text(warning)
    assert "slurm.options=[--propagate=NONE]" in warning
    assert carried_limits([planned(with_slurm(config, options=["--propagate=NONE"]))], Cluster()) == []
    for settings in ({"PropagateResourceLimits": "NONE"}, {"PropagateResourceLimitsExcept": "CPU,AS"}):
        assert carried_limits([plan], Cluster(settings=settings)) == []


def test_an_environment_that_the_setup_activates_is_not_the_python_that_runs(tmp_path: Path) -> None:
    setup = ["module load x", "source /venvs/a/bin/activate", f"source {sys.prefix}/bin/activate"]
    (warning,) = other_python([planned(with_slurm(tiny_config(tmp_path), setup=setup))])
    assert "/venvs/a/bin/activate" in warning
    assert sys.executable in warning


def test_folders_that_other_machines_do_not_see(tmp_path: Path, golden: Golden) -> None:
    plan = planned(tiny_config(tmp_path))
    warnings = of_this_machine_alone([plan], Cluster(), Path(__file__).parent)
    golden.text("\n".join(warnings))
    here = Cluster(settings={"SlurmctldHost[0]": "box(127.0.0.1)"})
    assert of_this_machine_alone([plan], here, Path(__file__).parent) == []
