"""Studies as data, for a notebook or a script: `read_study` gives frames and the answers of the commands.

command_runner.py   the JSON, the text and the picture of a command of `python -m analysis`
answers.py          those of `curves`, `best-lr` and `fit` as objects with fields
study_view.py       a study: its runs as a frame, and its answers
"""

from analysis.notebook.study_view import StudyView, read_study

__all__ = ["StudyView", "read_study"]
