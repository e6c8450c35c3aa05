"""Code that runs inside a job of Slurm: next to each run a process that starts it, waits, and judges its end.

srun --> python -m slurm.in_job word --> supervisor --> core.py

slots              slots of a job, which take missing runs; a step of srun for each of several
run_in_job         one start of a job for one run
requeue_decision   whether the job goes back into the queue
plain              a run in the job of a user's own sbatch script
"""
