"""Runs of a study as rows, of ours and of other programs.

    run folder -> facts -> index (cache) ---------------------------------> study -> filters (--where)
    CSV -> dialect -> csv_table -> foreign_formats -> foreign_logs -> foreign --^
                                         |
                                         +-> curves: whole columns of one run

run.py            one run: values, configuration, where its curve is
facts.py          a run folder as plain values
index.py          the same for a whole study, cached by size and time of the files
dialect.py        separator and decimal point of a CSV
csv_table.py      a CSV as columns and rows
foreign_table.py  whether rows are a curve, a table of runs, or a chart of several
foreign_formats.py  rows of a run in MLflow, TensorBoard, transformers, JSON lines
foreign_logs.py   folders of these programs, with settings and states
foreign.py        runs out of all of these
study.py          the runs, what was skipped and why, which are there twice
fair.py           which losses compare, and runs as they were at equal tokens
"""

from analysis.reading.curves import curve
from analysis.reading.run import Run
from analysis.reading.study import Study, read_study

__all__ = ["Run", "Study", "curve", "read_study"]
