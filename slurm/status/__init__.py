"""The state of each run of a study, from everything that is known of it.

for run in study_states(Path("runs/lr_sweep")):
    print(run.state, run.reason)

run_evidence    files that the run, its supervisor, its job and its submitter wrote
slurm_answers   one squeue and one sacct for a whole study
timeline        all records of a run, sorted into the starts of its jobs (by slurm.records.stamps)
run_history     what follows from them: does it wait, does it run, has it left its job
state_table     the first row that holds gives the state: live_rows, ended_rows, then its own
study_status    all together
run_state       the result, with progress; done_runs keeps it for runs that are done
"""

from slurm.status.slurm_answers import SlurmAnswers, ask_slurm
from slurm.status.study_status import RunState, state_of_run, study_states

__all__ = ["RunState", "SlurmAnswers", "ask_slurm", "state_of_run", "study_states"]
