"""Starting runs, each in a process of its own: on this machine, or as jobs of Slurm.

    states, records                      words for states; files: what was submitted, started, ended
       |
    cluster, queue                       what the cluster has and says; job scripts, one sbatch for each array
       |
    status, plans                        the state of each run; plans of all runs of a sweep
       |
    launch                               processes of runs on this machine, and the code that they run
       |
    in_job, submit, tokens, search       inside a job; submissions of runs, of token sets; searches
       |
    commands                             python -m slurm COMMAND

How a run starts:

    experiments.py --one run--> launch.work_through.run_one --> core.py RUN_FOLDER
                   --sweep----> submit.sweep --Hydra--> submit.submit_runs --> sbatch
                   submit.foreground, or submit.local_process --> launch.work_through --> core.py ...
    a job of Slurm ------------> in_job --> core.py RUN_FOLDER

    pretokenize_dataset.py --slurm--> tokens.submit_tasks --> sbatch
    a job of a token set ------------> tokens.run_task --> pretokenize_dataset.py

Importing the package loads nothing: the process next to each job's run stays small.
"""
