"""Files of a study that say what was submitted, started and ended: written before Slurm is asked."""
