"""Commands of `python -m slurm`, a module each."""
