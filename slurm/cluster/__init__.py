"""Facts of a cluster, the resources that a run asks of it, and what its commands say.

    query_cluster.read_cluster() -> facts.Cluster    a few questions to scontrol, sinfo, sacctmgr
    resources.ask(config, plan, cluster)             the options of sbatch for one run
    place.planned_for(cluster)                       plans for its nodes, not for this machine
    sbatch_errors, node_fit                          messages of sbatch: the key and the choices
    findings.findings(cluster)                       what `python -m slurm doctor` reports

Nothing is submitted here, and no command changes anything.
"""

from slurm.cluster.facts import Cluster, NodeKind, Partition
from slurm.cluster.place import planned_for
from slurm.cluster.query_cluster import read_cluster
from slurm.cluster.resources import Ask, ask
from slurm.cluster.speeds import Speeds

__all__ = ["Ask", "Cluster", "NodeKind", "Partition", "Speeds", "ask", "planned_for", "read_cluster"]
