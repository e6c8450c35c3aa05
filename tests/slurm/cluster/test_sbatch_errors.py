"""Messages of sbatch, names that the cluster does not list, and needs that no node meets."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_slurm import recorded

from slurm.cluster import Cluster
from slurm.cluster.node_fit import away_nodes, never_fits
from slurm.cluster.options import read_options
from slurm.cluster.sbatch_errors import directives, is_unanswered, meaning, unknown_names
from tests.golden_text import Golden


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified\n", "slurm.partition"),
        ("allocation failure: No partition specified or system default partition\n", "slurm.partition"),
        ("allocation failure: Required partition not available (inactive or drain)\n", "slurm.partition"),
        ("allocation failure: Invalid account or account/partition combination specified\n", "slurm.account"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification\n", "slurm.qos"),
        ("allocation failure: Requested time limit is invalid (missing or too much)\n", "slurm.time"),
        ("sbatch: error: Memory specification can not be satisfied\n", "slurm.mem"),
        ("allocation failure: Requested node configuration is not available\n", "slurm.partition"),
        ("allocation failure: Node count specification invalid\n", "slurm.nodes"),
        ("sbatch: error: Invalid generic resource (gres) specification\n", "slurm.gpus_per_node"),
        ("sbatch: error: Invalid feature specification\n", "slurm.constraint"),
        ("allocation failure: Requested reservation is invalid\n", "slurm.options"),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
         "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", "slurm"),
        ("sbatch: unrecognized option '--exclusiv'\nTry \"sbatch --help\" for more\n", "slurm.options"),
        ("sbatch: error: something new\n", "slurm"),
    ],
)  # fmt: skip
def test_message_of_sbatch_names_the_key(said: str, where: str) -> None:
    problem = meaning(said, {"qos": "fast", "time": "4:00:00"}, recorded("20.11"))
    assert problem.where == where
    assert "error:" not in problem.what
    assert said.splitlines()[0].rpartition(": ")[2] in problem.what, "its own words are kept"


@pytest.mark.parametrize(
    ("said", "choices"),
    [
        ("Invalid partition name specified", "batch scavenge"),
        ("Invalid account or account/partition combination specified", "teaching waterlab"),
        ("Invalid qos specification", "long normal"),
    ],
)
def test_message_of_sbatch_about_a_name_lists_choices(said: str, choices: str) -> None:
    assert f"choices: {choices}." in meaning(said, {}, recorded("20.11")).what
    assert "choices" not in meaning(said, {}).what


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"partition": "batch"}, None),
        ({"partition": "batch,scavenge"}, None),
        ({"partition": "batch,bach"}, "slurm.partition"),
        ({"account": "WaterLab"}, None),
        ({"account": "waterlap"}, "slurm.account"),
        ({"qos": "long"}, None),
        ({"qos": "lang"}, "slurm.qos"),
    ],
)
def test_unknown_name(options: dict[str, Any], where: str | None, golden: Golden) -> None:
    found = unknown_names(options, recorded("20.11"))
    assert [problem.where for problem in found] == ([where] if where else [])
    if found:
        golden.text("\n".join(map(str, found)))
    assert unknown_names(options, Cluster()) == [], "nothing is known"


@pytest.mark.parametrize(
    ("version", "options", "keys"),
    [
        ("20.11", {"partition": "batch", "mem": "190000M", "nodes": 16}, []),
        ("20.11", {"partition": "batch", "nodes": 17}, ["nodes"]),
        ("20.11", {"partition": "batch", "mem": "200000M", "cpus-per-task": 50}, ["mem", "cpus_per_task"]),
        ("20.11", {"partition": "batch", "cpus-per-task": 20, "ntasks-per-node": 3}, ["cpus_per_task"]),
        ("20.11", {"partition": "batch,scavenge", "gres": "gpu:1"}, []),
        ("20.11", {"partition": "batch", "gres": "gpu:1"}, ["gpus_per_node"]),
        ("20.11", {"partition": "scavenge", "gres": "gpu:V100:4"}, []),
        ("20.11", {"partition": "scavenge", "gres": "gpu:v100:1", "nodes": 3}, ["nodes"]),
        ("20.11", {"partition": "batch", "constraint": "skylakes"}, ["constraint"]),
        ("20.11", {"partition": "batch", "constraint": "a&b"}, []),
        ("23.11", {"partition": "gpu", "gres": "gpu:h100:1"}, ["gpu_type"]),
        ("23.11", {"partition": "gpu", "gres": "gpu:a100:8"}, ["gpus_per_node"]),
        ("23.11", {"partition": "gpu", "gres": "gpu:4", "constraint": "plain", "mem": "700G"}, ["partition"]),
        ("25.11", {"partition": "gpu", "gres": "gpu:4"}, []),  # sinfo lists no node of it
    ],
)  # fmt: skip
def test_needs_that_no_node_meets(
    version: str, options: dict[str, Any], keys: list[str], golden: Golden
) -> None:
    partitions = recorded(version).partitions_of(options["partition"])
    found = never_fits(options, partitions)
    assert [problem.where for problem in found] == [f"slurm.{key}" for key in keys]
    if found:
        golden.text("\n".join(map(str, found)))


@pytest.mark.parametrize(
    ("version", "options", "count"),
    [
        ("20.11", {"partition": "batch"}, 2),
        ("20.11", {"partition": "scavenge", "gres": "gpu:1"}, 0),
        ("23.02", {"partition": "normal"}, 7),
    ],
)
def test_number_of_nodes_that_are_away(version: str, options: dict[str, Any], count: int) -> None:
    assert away_nodes(options, recorded(version).partitions_of(options["partition"])) == count


def test_options_that_have_a_key_or_are_ours(golden: Golden) -> None:
    lines = ["--mem=3G -t 4:00:00", "-a 1-3", "--exclusive", "--gres gpu:1", "-w n1", "'"]
    options, wrong = read_options(lines)
    assert options == {"exclusive": True, "gres": "gpu:1", "nodelist": "n1"}
    assert len(wrong) == 4
    golden.text("\n".join(problem.what for problem in wrong))


@pytest.mark.parametrize(
    ("said", "unanswered"),
    [
        ("Socket timed out on send/recv operation", True),
        ("Zero Bytes were transmitted or received", True),
        ("Unable to contact slurm controller (send failure)", True),
        ("Message receive failure", True),
        ("Unable to contact slurm controller (shutdown failure)", True),
        ("Connection reset by peer", True),
        ("Header lengths are longer than data received", True),
        ("Unable to contact slurm controller (connect failure)", False),
        ("Connection refused", False),
        ("Invalid qos specification", False),
        ("Requested time limit is invalid (missing or exceeds some limit)", False),
    ],
)
def test_errors_after_which_there_can_be_a_job(said: str, unanswered: bool) -> None:
    """Texts of slurm_errno.c."""
    assert is_unanswered(f"sbatch: error: Batch job submission failed: {said}\n", 1) == unanswered
    assert is_unanswered("", -9)


def test_lines_of_a_script() -> None:
    assert directives({"mem": "9G", "requeue": True, "comment": "a b"}) == (
        "#SBATCH --mem=9G\n#SBATCH --requeue\n#SBATCH --comment='a b'\n"
    )
