"""Memory of a cluster's GPUs, as far as their names say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from recorded_slurm import planned, recorded, with_slurm
from tiny_run import tiny_config

from conf.schema import Model, Slurm
from slurm.cluster.facts import NodeKind, Partition
from slurm.cluster.gpu_memory import USABLE_SHARE, gpu_bytes, type_bytes
from slurm.submit.cluster_plan import plan_for_cluster

pytestmark = pytest.mark.usefixtures("sbatch_accepts")
GB = 1 << 30


@pytest.mark.parametrize(
    ("name", "size_gb"),
    [
        ("a100_80gb", 80),
        ("a100_80", 80),
        ("a100-sxm4-80gb", 80),
        ("nvidia_h100_80gb_hbm3", 80),
        ("nvidia_a100_3g.20gb", 20),
        ("a100_1g.5gb", 5),
        ("v100-32g", 32),
        ("Tesla_T4", 16),
        ("l40s", 48),
        ("rtx_a6000", 48),
        ("h200", 141),
        ("h100_nvl", 80),
        ("a100", None),
        ("v100", None),
        ("volta", None),
        ("gtx_1080", None),
        ("rtx_2080", None),
    ],
)
def test_memory_in_the_name_of_a_type(name: str, size_gb: int | None) -> None:
    assert type_bytes(name) == (None if size_gb is None else int(USABLE_SHARE * size_gb * GB))


def partition(**gpus: int) -> Partition:
    return Partition("gpu", kinds=tuple(NodeKind(1, gpus={name: count}) for name, count in gpus.items()))


def test_the_users_word_goes_first() -> None:
    assert gpu_bytes(Slurm(gpu_mem=40 * GB, gpu_type="h100"), []) == 40 * GB


def test_without_a_type_it_is_the_smallest_of_the_partition() -> None:
    both = [partition(h100=4, t4=2)]
    assert gpu_bytes(Slurm(), both) == type_bytes("t4")
    assert gpu_bytes(Slurm(gpu_type="h100"), both) == type_bytes("h100")
    assert gpu_bytes(Slurm(), [partition(h100=4, a100=2)]) is None
    assert gpu_bytes(Slurm(), []) is None


def test_a_feature_that_names_the_memory() -> None:
    assert gpu_bytes(Slurm(constraint="v100-32g"), []) == type_bytes("v100-32g")
    assert gpu_bytes(Slurm(constraint="gpu&hbm80g", gpu_type="a100"), []) == type_bytes("a100_80gb")
    assert gpu_bytes(Slurm(constraint="gpu"), []) is None


def test_a_plan_refuses_what_the_gpu_cannot_hold(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, device="auto")
    planned(config)  # tokenizes
    large = dataclasses.replace(config, model=Model(name="large", d_model=2048, n_layers=24, n_heads=16))
    for gpu_type, fits in (("t4", False), ("h100", True)):
        asked = with_slurm(large, gpus_per_node=1, gpu_type=gpu_type)
        (run,) = plan_for_cluster([asked], cluster=recorded("20.11")).runs
        assert run.plan.memory.fits == fits


def test_runs_of_a_task_share_its_gpus(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, device="auto")
    planned(config)  # tokenizes

    def room(**slurm: int) -> int | None:
        asked = with_slurm(config, gpu_mem=24 * GB, **slurm)
        return plan_for_cluster([asked], cluster=recorded("20.11")).runs[0].plan.memory.room.gpu_total_bytes

    assert room(gpus_per_node=2, pack=2) == 24 * GB
    assert room(gpus_per_node=2, pack=3) == 12 * GB
    assert room(gpus_per_node=1, pack=8) == 3 * GB
    assert room(gpus_per_node=2, workers=8) == 24 * GB


def test_a_plan_names_gpus_that_stay_idle(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, device="auto")
    planned(config)  # tokenizes

    def warnings(**slurm: int) -> list[str]:
        found = plan_for_cluster([with_slurm(config, gpu_mem=GB, **slurm)], cluster=recorded("20.11"))
        return [line for line in found.warnings if "slurm.gpus_per_node" in line]

    assert len(warnings(gpus_per_node=4, pack=2)) == 1
    assert len(warnings(gpus_per_node=2, workers=3)) == 1
    assert warnings(gpus_per_node=2, pack=2) == []
    assert warnings(gpus_per_node=2) == []


def test_a_plan_says_that_the_memory_is_not_known(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, device="auto")
    planned(config)  # tokenizes
    small = with_slurm(config, gpus_per_node=1, gpu_mem=1 * GB)
    found = plan_for_cluster([small], cluster=recorded("20.11"))
    needed = found.runs[0].plan.memory.estimate.gpu_bytes
    assert found.runs[0].plan.memory.room.gpu_total_bytes == GB
    assert 0 < needed < GB
    assert not any("slurm.gpu_mem" in line for line in found.warnings)
    unknown = plan_for_cluster([with_slurm(config, gpus_per_node=1)], cluster=recorded("20.11"))
    assert any("slurm.gpu_mem" in line for line in unknown.warnings)
    on_cpus = plan_for_cluster([config], cluster=recorded("20.11"))
    assert not any("slurm.gpu_mem" in line for line in on_cpus.warnings)
