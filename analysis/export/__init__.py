"""Series and tables of runs for other programs: csv, TensorBoard, Weights & Biases, pandas.

growing.py      whole lines of a file that is still written
clock.py        when each step was done
series.py       the points of one run, also of one that goes on
facts.py        what is told of a run besides them, and what never leaves the machine
result_table.py  rows of results as CSV, as a frame of pandas or polars, as HTML
tidy.py         csv: a row for each number
tensorboard.py  event files
wandb.py        runs of W&B
targets.py      which writer a name means, and where it writes
follow.py       runs that go on, until they end: what `logging=` starts beside a run
"""
