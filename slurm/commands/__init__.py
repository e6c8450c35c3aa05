"""What `python -m slurm` offers, a module a command."""
