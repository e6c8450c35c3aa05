"""Submitting runs that outlive the command; watching, cancelling and resubmitting them.

    submit_runs --plans, resource_check--> batch --two_phase: records--> send --> sbatch
                                             |                       local_process: a process here
                                         reconcile: records that a killed submitter left

Importing the package loads nothing: parts of it are run as programs.
"""
