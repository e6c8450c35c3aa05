"""A token set made by jobs: `pretokenize_dataset.py INPUTS --slurm SITE --tasks N`.

    submit_tasks.run_on_slurm --task_resources: what a task requests, what the cluster refuses
                              --tasks that are neither done nor queued nor running --> one job array
    a job of the array -----> run_task, in the job --> pretokenize_dataset.py ... --block-range 3/16
    task_status ------------> state of each task, for `status`, `why` and `logs`
    resubmit_tasks ---------> the command that was typed, once more

Files are next to the set, in `.SET.slurm/`: `.submissions/ID/` is what was submitted,
`00003-of-00016/log.txt` the log of a task, `.snapshots/` the code that runs.
"""
