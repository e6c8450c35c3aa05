"""Columns that a table of runs shows, and the text of each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import ne
from typing import Any

from analysis.reading.study import Run, Study, versions_of
from experiment_utils.errors import UserError
from experiment_utils.json_values import finite, is_number
from experiment_utils.quantities import format_count, format_duration

OF_A_RUN = ("run", "state", "step", "tokens", "train_loss", "val_loss", "best_val_loss", "seconds",
            "tokens_per_s", "peak_bytes", "device")  # fmt: skip
"""Shown by default if any run has a value; columns that vary between runs come after the name."""

OF_EXPORTS = (
    "run", "folder", "state", "reason", "identity", "model", "d_model", "lr", "seed", "parameters",
    "non_embedding", "tokens", "budget_tokens", "step", "steps", "flops", "train_loss", "val_loss",
    "best_val_loss", "val_at_tokens", "bits_per_byte", "eval_tokens", "diverged", "seconds", "tokens_per_s",
    "mfu", "peak_bytes", "limit_bytes", "estimate_bytes", "attempts", "device", "batch_tokens", "seq_len",
    "tokenizer", "data", "tags", "notes", "code",
)  # fmt: skip
"""Columns of `--json`, `--csv` and `--parquet`: some are added, none is renamed."""

LOSSES = ("val_loss", "validation_loss", "val/loss", "eval_loss", "eval/loss", "test_loss", "loss")
"""Names of columns of other programs that are taken as the loss without --y."""

_MOST_VARYING = 6
_NAMED_BY_SIZE = ("model.name", "model.d_model", "model.n_layers", "model.n_heads")


def y_column(study: Study, asked: str | None) -> str:
    """Column of the loss: the one asked for, else `val_loss` or the usual names of other programs.

    Raises:
        UserError: no such column; or runs of other programs have none of the usual names.
    """
    if asked:
        return study.column(asked)
    if study.is_ours:
        return "val_loss"
    there = {name for run in study.runs for name in run.values}
    found = next((name for name in LOSSES if name in there), None)
    if found is None:
        raise UserError(
            f"--y (in Python: y=) is needed: the column of the loss. There are: {', '.join(sorted(there))}"
        )
    return found


def shown_columns(study: Study) -> list[str]:
    """Columns that a terminal shows by default."""
    if not study.is_ours:
        names = list(dict.fromkeys(name for run in study.runs for name in run.values if name != "file"))
        return ["run", *names]
    place = OF_A_RUN.index("seconds")
    names = [*OF_A_RUN[2:place], *study.metrics, *OF_A_RUN[place:]]
    shown = [name for name in names if any(run.value(name) is not None for run in study.runs)]
    if all(run.value("device") in ("cpu", None) for run in study.runs):
        shown = [name for name in shown if name != "device"]
    code = ["code"] if versions_of(study.runs).are_several else []
    return ["run", *varying_columns(study.runs)[:_MOST_VARYING], *code, "state", *shown]


def export_columns(study: Study) -> list[str]:
    """Columns of a file by default."""
    if not study.is_ours:
        return shown_columns(study)
    varying = (name for name in varying_columns(study.runs) if name not in OF_EXPORTS)
    return [*OF_EXPORTS, *study.metrics, *varying]


def varying_columns(runs: Sequence[Run]) -> list[str]:
    """`model`, `lr`, `seed` and config paths of the identity, if they differ between these runs."""
    found = [name for name in ("model", "lr", "seed") if len({repr(run.value(name)) for run in runs}) > 1]
    configs = [run.config for run in runs if run.config]
    if len(configs) < 2:
        return found
    paths = sorted(differing_paths(configs))
    if not paths:
        return found
    from conf.composing.run_identity import is_in_identity

    known = {"optimizer.lr", "seed", "seed_init", *_NAMED_BY_SIZE, "training.max_tokens"}
    return found + [path for path in paths if path not in known and is_in_identity(path)]


def differing_paths(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """Config paths whose values differ between runs; a missing key counts as different."""
    first = configs[0]
    paths, values = [*first], [*first.values()]
    found: set[str] = set()
    for config in configs[1:]:
        if [*config] == paths:  # as one program writes them: a fourth of the time
            found.update(compress(paths, map(ne, values, config.values())))
        else:
            found.update([path for path, value in config.items() if first.get(path, ...) != value])
            found.update(first.keys() - config.keys())
    return found


def titles(runs: Sequence[Run], columns: Sequence[str]) -> list[str]:
    """Titles for people: a registered metric has its unit behind its name."""
    units = {name: unit for run in runs for name, unit in run.metrics.items() if unit}
    return [f"{name} ({units[name]})" if name in units else name for name in columns]


def cell(column: str, value: Any) -> str:
    """Text of a value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if finite(value) is None:
        return str(value)
    if column.endswith("_bytes"):
        from experiment_utils.quantities import format_bytes

        return format_bytes(value)
    if "loss" in column or column in ("bits_per_byte", "grad_norm"):
        return f"{value:.4f}"
    if column in ("tokens", "budget_tokens", "val_at_tokens", "parameters", "non_embedding", "tokens_per_s"):
        return format_count(round(value))
    if column == "seconds":
        return format_duration(value)
    if "flops" in column:
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def is_right(values: Sequence[Any]) -> bool:
    """Whether a column is one of numbers."""
    return all(value is None or is_number(value) for value in values)


def plain(value: Any) -> Any:
    """The value, None if it is a number that is not finite, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
