"""The state of each run of a study, from everything that knows something of it.

for run in study_states(Path("runs/lr_sweep")):
    print(run.state, run.reason)

run_evidence    files that the run, its supervisor and its submitter wrote
slurm_answers   one squeue and one sacct for a whole study
case            both of one run; `signs`: questions about it that several rules ask
judge           a case to one state and its reason, in the order of `slurm.states.PRECEDENCE`
phrases         the words of reasons
study_status    all together, with progress
"""

from slurm.status.slurm_answers import SlurmAnswers, ask_slurm
from slurm.status.study_status import RunState, state_of_run, study_states

__all__ = ["RunState", "SlurmAnswers", "ask_slurm", "state_of_run", "study_states"]
