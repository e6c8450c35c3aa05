"""Starting runs, each in a process of its own: on this machine, or as jobs of Slurm.

    experiments.py --one run--> local.run_one --> core.py RUN_FOLDER
                   --sweep----> sweep.run_sweep --Hydra--> hydra_plugins --> local.LocalRuns --> core.py ...
                   --submit---> sweep.submit_sweep --Hydra--> submit.SubmittedRuns --> sbatch
    a job of Slurm ------------> in_job.start --> core.py RUN_FOLDER

    pretokenize_dataset.py --slurm--> tokens.submit_tasks --> sbatch
    a job of a token set ------------> tokens.run_task --> pretokenize_dataset.py

Importing the package loads nothing: the process that stands beside each job's run is to stay small.
"""
