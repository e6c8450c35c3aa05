"""What became of each run of a study, out of everything that knows something of it.

for truth in study_truth(Path("runs/lr_sweep")):
    print(truth.state, truth.reason)

known.py    what the run, its supervisor and its submitter wrote
answers.py  what Slurm says: one squeue, one sacct for a whole study
case.py     all of it of one run, side by side
signs.py    questions about it that rules ask
judge.py    a case to one state and its reason, in the order of `slurm.states.PRECEDENCE`
words.py    how that is told
study.py    all together, with progress
"""

from slurm.truth.answers import SlurmAnswers, ask_slurm
from slurm.truth.study import Truth, run_truth, study_truth

__all__ = ["SlurmAnswers", "Truth", "ask_slurm", "run_truth", "study_truth"]
