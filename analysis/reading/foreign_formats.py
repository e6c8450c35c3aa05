"""Files of other programs that are not read, and the command that makes a CSV of each."""

from __future__ import annotations

from pathlib import Path

_FORMATS = (
    ("trainer_state.json", "of transformers",
     "python -c \"import json, pandas; "
     "pandas.DataFrame(json.load(open('{path}'))['log_history']).to_csv('run.csv')\""),
    ("hparams.yaml", "of Lightning: give its metrics.csv, or copy that of each version into a folder",
     "cp {folder}/metrics.csv runs/NAME.csv"),
    ("meta.yaml", "of MLflow",
     "python -c \"import mlflow; mlflow.search_runs(search_all_experiments=True).to_csv('runs.csv')\""),
    ("*.jsonl", "with a JSON object a line",
     "python -c \"import pandas; pandas.read_json('{path}', lines=True).to_csv('run.csv')\""),
)  # fmt: skip
"""(name of the file, whose it is, what makes a CSV of it)."""
_DEPTHS = ("", "*/", "*/*/")


def other_format(place: Path) -> str | None:
    """Sentence with a command about the first file of a known format at or below a path, or None."""
    for name, whose, command in _FORMATS:
        if place.is_dir():
            found = next((path for depth in _DEPTHS for path in place.glob(depth + name)), None)
        else:
            found = place if place.match(name) else None
        if found is not None:
            return f"{found.name} {whose}: {command.format(path=found, folder=found.parent)}"
    return None
