"""A study's runs as rows: ours and foreign CSVs alike, read once, the index being only a cache.

tail.py     the last whole row of a CSV
facts.py    a run folder to plain values
dialect.py  what stands between the fields of a CSV
index.py    the same of a whole study, remembered by size and time of the files
foreign.py  a folder of CSVs that other programs wrote
study.py    all of it: runs, what was skipped and why, who is there twice
filters.py  --where
curves.py   whole columns of one run
"""

from analysis.reading.curves import curve
from analysis.reading.study import Run, Study, read_study

__all__ = ["Run", "Study", "curve", "read_study"]
