"""Text of a site file (`slurm=NAME`) for a cluster, from what its commands report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from experiment_utils.quantities import format_limit
from experiment_utils.typed_here import as_installed
from slurm.cluster.facts import Cluster, Partition
from slurm.cluster.gpu_memory import type_bytes

_PLAIN_WORD = re.compile(r"[A-Za-z][\w.-]*")
_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")


def site_file(cluster: Cluster, name: str) -> str:
    """YAML of conf/slurm/NAME.yaml: values that the cluster reports, and commented lines with choices.

    It has names of partitions, accounts and qualities of service, and no user, path or host.
    """
    partition = _partition(cluster)
    lines = [
        f"# {cluster.name or 'This cluster'}, from what it reports (python -m slurm doctor --write)",
        "#",
        f"# Use it with slurm={name}. To set a key, remove its #: python experiments.py --help slurm",
        "# explains the keys. The comment above a key names the command that reported its values.",
        *_places(cluster, partition),
        *(_resources(partition) if partition else ()),
        "",
        "# internet on the nodes: srun curl -sI https://huggingface.co | head -1",
        "# offline: true",
        "",
        "# lines of shell before each run: module avail, conda env list",
        "# setup: [module load cuda, conda activate NAME]",
    ]
    if not any(line and not line.startswith("#") for line in lines):
        lines += ["", "{}"]
    return as_installed("\n".join([*lines, ""]))


def _partition(cluster: Cluster) -> Partition | None:
    """The default partition, or the first one with GPUs if that has none."""
    default = [cluster.default_partition] if cluster.default_partition else []
    found = [*default, *(one for one in cluster.partitions.values() if one.is_up)]
    return next((one for one in found if one.most_gpus()), next(iter(found), None))


def _places(cluster: Cluster, partition: Partition | None) -> Iterator[str]:
    """Lines of partition, account and quality of service."""
    if partition is not None:
        default = f", the default is {cluster.default_partition.name}" if cluster.default_partition else ""
        yield ""
        yield f"# scontrol show partition: {' '.join(cluster.partitions)}{default}"
        yield f"partition: {_yaml(partition.name)}"
    if cluster.accounts:
        default = f", the default is {cluster.default_account}" if cluster.default_account else ""
        yield ""
        yield f"# sacctmgr show user: {' '.join(cluster.accounts)}{default}"
        is_sole = len(cluster.accounts) == 1
        yield f"{'' if is_sole else '# '}account: {_yaml(cluster.default_account or cluster.accounts[0])}"
    qos = sorted({name for found in cluster.associations or () for name in found.qos})
    if qos:
        yield ""
        yield f"# sacctmgr show user withassoc: {' '.join(qos)}"
        yield f"# qos: {_yaml(qos[0])}"


def _resources(partition: Partition) -> Iterator[str]:
    """Lines of GPUs, cores and time."""
    gpus, cpus = partition.most_gpus() or 0, partition.most_cpus
    if gpus:
        yield ""
        yield f"# sinfo: at most {gpus} on a node"
        yield "gpus_per_node: 1"
        if partition.gpu_types:
            yield f"# sinfo: {' '.join(partition.gpu_types)}"
            yield f"# gpu_type: {_yaml(partition.gpu_types[0])}"
        if not partition.gpu_types or None in map(type_bytes, partition.gpu_types):
            yield "# memory of one GPU, which Slurm does not report: nvidia-smi on a node"
            yield "# gpu_mem: 80GB"
    if cpus:
        yield ""
        yield f"# sinfo: at most {cpus} CPUs{f' and {gpus} GPUs' if gpus else ''} on a node"
        yield f"# cpus_per_task: {max(1, cpus // max(1, gpus))}"
    limit = "none" if partition.max_time_s is None else format_limit(partition.max_time_s)
    default = "the limit" if partition.default_time_s is None else format_limit(partition.default_time_s)
    yield ""
    yield f"# scontrol show partition: limit {limit}; a job without a time gets {default}"
    yield f"# time: {_yaml(limit if partition.max_time_s else '1-00:00:00')}"


def _yaml(value: str) -> str:
    """A scalar; quoted, unless it is a plain word."""
    is_plain = _PLAIN_WORD.fullmatch(value) and value.lower() not in _YAML_WORDS
    return value if is_plain else json.dumps(value)
