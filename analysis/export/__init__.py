"""Series and tables of runs for other programs: csv, TensorBoard, Weights & Biases, pandas.

tail_file.py    whole lines of a file that is still written
clock.py        when each step was done
series.py       the points of one run, also of one that goes on
run_facts.py    facts of a run, and keys that never leave the machine
result_table.py  rows of results as CSV, as a frame of pandas or polars, as HTML
tidy.py         csv: a row for each number
tensorboard.py  event files
wandb.py        runs of W&B
writers.py      which writer a name means, and where it writes
follow.py       running runs, until they end: the process that `logging=` starts for a run
"""
