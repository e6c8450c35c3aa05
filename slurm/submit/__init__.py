"""Submitting runs that outlive the command, and what is done with a submission afterwards.

    runs.SubmittedRuns --plans--> batch.submit --phases: intents on the disk--> send.send --> sbatch
                                       |                                  local_process: this process, or one
                                       |                                  in the background
                                 reconciling: what a dead submitter left
    slurm.tokens ------tasks of a token set------> phases

Importing the package loads nothing: parts of it are run as programs.
"""
