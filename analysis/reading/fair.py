"""What must be equal for losses of several runs to compare, and runs as they were at the same budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from analysis.reading.curves import curve
from analysis.reading.study import Run
from conf import UserError
from conf.quantities import format_count

_IN_NATS = ("val_loss", "best_val_loss", "train_loss")


def check_losses_compare(runs: Sequence[Run], y: str) -> None:
    """Losses a token are of one tokenizer and the same tokens of val; bits a byte of the same tokens of val.

    Raises:
        UserError: they are not; tells which runs differ in what.
    """
    if not all(run.is_ours for run in runs):
        return
    same: list[tuple[str, str]] = [("tokenizer", "tokenizers")] if y in _IN_NATS else []
    if y in _IN_NATS:
        same += [("data", "data"), ("seq_len", "windows"), ("eval_tokens", "numbers of val tokens")]
    for column, words in same:
        groups: dict[Any, list[str]] = defaultdict(list)
        for run in runs:
            if run.value(column) is not None:
                groups[run.value(column)].append(run.name)
        if len(groups) > 1:
            told = "; ".join(f"{str(value)[:16]}: {_few(names)}" for value, names in groups.items())
            raise UserError(
                f"these losses do not compare: they are of {len(groups)} {words} ({told}). Choose with "
                f"--where {column}=..., take --y bits_per_byte where tokenizers of one text differ, or say "
                "--any-data to go on all the same"
            )


def at_tokens(runs: Sequence[Run], asked: float | None, y: str = "val_loss") -> tuple[list[Run], float]:
    """The runs as they were at their last evaluation within `asked` tokens, or within what all reached.

    Of ours alone: tokens, flops, step, seconds and losses are of that row. Runs without one are left out.

    Raises:
        UserError: none has an evaluation there.
    """
    curves = {}  # by folder: the same run, started in two studies, has one name in both
    for run in runs:
        try:
            curves[run.folder] = curve(run, ["tokens", "flops", "step", "seconds", "train_loss", "val_loss"])
        except UserError:
            continue
    points = {folder: found["tokens"][_known(found)] for folder, found in curves.items()}
    points = {folder: tokens for folder, tokens in points.items() if len(tokens)}
    if not points:
        raise UserError("no run has an evaluation yet: there is no common number of tokens")
    limit = min(float(tokens[-1]) for tokens in points.values()) if asked is None else asked
    found = []
    for run in runs:
        if run.folder not in points:
            continue
        known = curves[run.folder]
        rows = [row for row in range(len(known["tokens"])) if known["tokens"][row] <= limit]
        rows = [row for row in rows if math.isfinite(known["val_loss"][row])]
        if rows:
            last = {name: float(values[rows[-1]]) for name, values in known.items()}
            values = {
                **run.values,
                **last,
                "best_val_loss": min(float(known["val_loss"][row]) for row in rows),
            }
            lost = not math.isfinite(last["train_loss"])
            found.append(replace(run, values=values | {"diverged": lost}, state="done"))
    if not found:
        raise UserError(f"no run has an evaluation within {format_count(limit)} tokens")
    return found, limit


def _known(found: dict[str, Any]) -> Any:
    import numpy as np

    return np.isfinite(found["val_loss"])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
