"""What the cluster has, what a run asks of it, and what it would refuse.

    read.read_cluster() -> facts.Cluster    a few questions to scontrol, sinfo, sacctmgr
    resources.ask(config, plan, cluster)    the options of sbatch for one run, and how each came about
    place.planned_for(cluster)              how plans are made for its nodes, not for this machine
    refuse.problems(asked, cluster)         everything that the cluster would say no to, at once
    reach.unreachable(plans)                what a node would miss

Nothing is submitted here, and no command changes anything.
"""

from slurm.cluster.facts import Cluster, NodeKind, Partition
from slurm.cluster.place import planned_for
from slurm.cluster.query_cluster import read_cluster
from slurm.cluster.resources import Ask, ask, resources
from slurm.cluster.speeds import Speeds

__all__ = [
    "Ask", "Cluster", "NodeKind", "Partition", "Speeds", "ask", "planned_for", "read_cluster",
    "resources",
]  # fmt: skip
