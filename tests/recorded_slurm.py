"""Slurm clusters from recorded outputs: tests/golden/slurm/cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from conf import Config
from memory.accounting.sacct import Answer, Ask
from slurm.cluster import Cluster, planned_for, read_cluster
from slurm.plans.sweep_plans import plan_all
from training.plan.run_plan import Plan

OUTPUTS = Path(__file__).resolve().parent / "golden" / "slurm" / "cluster"
VERSIONS = sorted(path.name for path in OUTPUTS.iterdir() if path.is_dir())


def answers_of(version: str, **instead: Answer) -> Ask:
    """Stands for the commands of a cluster. instead: other answers, by the name of what is asked."""

    def ask(command: list[str], timeout_s: float) -> Answer:
        name = {
            "config": "config",
            "partition": "partitions",
            "withassoc": "associations",
            "qos": "qos",
        }.get(
            next((word for word in command if word in ("config", "partition", "withassoc", "qos")), ""),
            "nodes",
        )
        if name in instead:
            return instead[name]
        path = OUTPUTS / version / f"{name}.txt"
        if not path.exists():
            return Answer(
                1, error="sacctmgr: error: You are not running a supported accounting_storage plugin\n"
            )
        return Answer(0, path.read_text())

    return ask


def recorded(version: str, **instead: Answer) -> Cluster:
    """The cluster as it is read from these outputs."""
    return read_cluster(ask=answers_of(version, **instead), user="ada")


def planned(config: Config, cluster: Cluster | None = None) -> Plan:
    """The plan of a run that goes to a cluster, of which nothing is known by default."""
    (plan,) = plan_all([config], tokenize=True, place=planned_for(cluster or Cluster()))
    return plan


def with_slurm(config: Config, **values: Any) -> Config:
    """The configuration with other values in `slurm`."""
    return dataclasses.replace(config, slurm=dataclasses.replace(config.slurm, **values))
