"""What happens inside a job: one process beside each run starts it, waits, judges, and hands it back.

srun --> python -m slurm.in_job word --> supervisor --> core.py

job        which job this is; asks Slurm about it, and for another start of it
running    the story of one run in one start of a job
judge      what comes after a run has stopped: a table, pure
lock       whether another copy of the run is alive somewhere
starts     RUN/starts.json: every start of a job for this run, and what came of it
tokens     the same for a task of a token set, beside the pretokenizer
"""
