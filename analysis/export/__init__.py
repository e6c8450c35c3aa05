"""Series of runs handed on to other programs: csv, TensorBoard, Weights & Biases.

tail_file.py    whole lines of a file that is still written
clock.py        when each step was done
series.py       the points of one run, also of one that goes on
run_facts.py    facts of a run, and keys that never leave the machine
tidy.py         csv: a row for each number
tensorboard.py  event files
wandb.py        runs of W&B
writers.py      which writer a name means, and where it writes
follow.py       running runs, until they end: the process that `logging=` starts for a run
"""
