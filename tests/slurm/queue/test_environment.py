"""What of the environment goes to sbatch."""

from __future__ import annotations

from slurm.queue.environment import environment


def test_a_jobs_own_variables_stay_behind_and_the_cluster_is_still_found() -> None:
    around = {
        "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "8",
        "SLURM_MEM_PER_NODE": "100", "SRUN_DEBUG": "3", "SUBMITIT_EXECUTOR": "slurm", "RANK": "3",
        "MASTER_ADDR": "n1", "CUDA_VISIBLE_DEVICES": "1", "PMI_RANK": "0", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    assert environment(around, ()) == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "HF_HUB_OFFLINE": "1",
    }


def test_gpus_chosen_outside_of_a_job_are_the_users() -> None:
    assert environment({"CUDA_VISIBLE_DEVICES": "1"}, ()) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_sites_default_holds_only_where_nothing_else_is_said() -> None:
    around = {"SBATCH_ACCOUNT": "lab", "SBATCH_PARTITION": "old", "SBATCH_EXPORT": "NONE"}
    assert environment(around, ["partition", "mem"]) == {"SBATCH_ACCOUNT": "lab"}
