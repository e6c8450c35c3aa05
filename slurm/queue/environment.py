"""The environment in which sbatch is called.

Slurm's variables inside a job describe that job: sbatch would take the size of the new one from them
(`SLURM_NTASKS`, `SLURM_MEM_PER_NODE`), and its step would fail. SLURM_CONF, by which the cluster is found,
stays. A variable SBATCH_*, by which a site sets a default, overrides the script (sbatch(1), INPUT ENVIRONMENT
VARIABLES), so it stays only if the script does not set its option.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm.cluster.job_step import SRUN_ARGS

_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_", "SBATCH_", "PMI_", "PMI2_", "PMIX_", SRUN_ARGS)
_KEPT = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_JWT"}
_OF_TORCH = {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
_OF_ITS_GPUS = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}
_DEFAULTS = {
    "SBATCH_ACCOUNT": "account", "SBATCH_PARTITION": "partition", "SBATCH_QOS": "qos",
    "SBATCH_CONSTRAINT": "constraint", "SBATCH_RESERVATION": "reservation", "SBATCH_CLUSTERS": "clusters",
    "SBATCH_WCKEY": "wckey", "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_TIMELIMIT": "time",
}  # fmt: skip


def environment(variables: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """Return the variables that sbatch is given. options: of sbatch, without dashes, that the script sets."""
    in_a_job = "SLURM_JOB_ID" in variables
    given = set(options)
    kept = {}
    for name, value in variables.items():
        of_a_job = name.startswith(_OF_A_JOB) or name in _OF_TORCH or (in_a_job and name in _OF_ITS_GPUS)
        default_of = _DEFAULTS.get(name)
        if not of_a_job or name in _KEPT or (default_of is not None and default_of not in given):
            kept[name] = value
    return kept
