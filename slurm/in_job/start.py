"""The name that jobs submitted by earlier versions unpickle; see `slurm.queue.job_entry`."""

from slurm.queue.job_entry import start

__all__ = ["start"]
