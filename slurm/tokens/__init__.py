"""A token set made by jobs: `pretokenize_dataset.py TEXT --slurm SITE --tasks N`.

    command.run_on_slurm --asking: what a task asks for, what the cluster refuses
                         --sending: what is missing is submitted, in the two phases of slurm.submit.phases
                         --telling: what was submitted, how far the tasks are, what to type
    a job of Slurm -------> slurm.in_job.tokens --> pretokenize_dataset.py ... --block-range 3/16
                            pretokenize_dataset.py merge SET, when all of them are done

What belongs to it lies beside the set, as beside a study's runs: `.SET.slurm/.submissions/ID/` is what was
submitted, `.SET.slurm/00003-of-00016/log.txt` what a task wrote, `.SET.slurm/.snapshots/` the code that runs.
"""
