"""Calls of Slurm's clients, job scripts, and one sbatch for each array."""
