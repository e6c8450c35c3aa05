"""Output of a process of ours with its commands as in the checkout, wherever the process ran."""

from __future__ import annotations

import re
import subprocess

_SCRIPT = re.compile(r"\S*python (?:\S*/)?(experiments|pretokenize_dataset)\.py")
_HIGHWATER = r"(?:\S*python \S*/highwater|(?<![\w.])\S*\bhighwater) "
_COMMAND = re.compile(rf"{_HIGHWATER}(run|tokenize)\b")
_SCRIPTS = {"run": "experiments", "tokenize": "pretokenize_dataset"}
_ROOM = re.compile(rf"{_HIGHWATER}(?=(?:memory|data_loading|training|slurm|analysis)\b)")


def as_written(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same, with `python experiments.py` and `python -m ROOM`."""
    for name in ("stdout", "stderr"):
        text = _SCRIPT.sub(r"python \1.py", getattr(done, name) or "")
        text = _COMMAND.sub(lambda found: f"python {_SCRIPTS[found[1]]}.py", text)
        setattr(done, name, _ROOM.sub("python -m ", text))
    return done
