"""A job as Slurm knows it: the environment inside the job, and accounting afterwards."""
