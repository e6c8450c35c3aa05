"""The name that jobs unpickle, in this code and in copies of earlier code; see `slurm.queue.job_entry`."""

from slurm.queue.job_entry import start

__all__ = ["start"]
