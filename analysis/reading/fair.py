"""Checks that losses of several runs compare, and runs as they were at the same number of tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from analysis.reading.curves import curve
from analysis.reading.study import Run
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count
from experiment_utils.run_folder import RunFolder

SAME_TOKENS = 0.01
"""Relative difference in tokens up to which runs compare."""
_IN_NATS = ("val_loss", "best_val_loss", "train_loss")
_OF_ROWS = ("tokens", "flops", "step", "seconds", "train_loss", "val_loss")
_ON_THE_WAY = ("val_loss", "best_val_loss", "bits_per_byte", "train_loss", "flops", "seconds", "step")
"""Columns that are known at each evaluation."""


def check_losses_compare(runs: Sequence[Run], y: str) -> None:
    """Check that losses per token are of one tokenizer and the same tokens of val.

    Raises:
        UserError: they are not; shows which runs differ in what.
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
            runs_of = "; ".join(f"{str(value)[:16]}: {_few(names)}" for value, names in groups.items())
            raise UserError(
                f"these losses do not compare: they are of {len(groups)} {words} ({runs_of}). Choose with "
                f"--where {column}=..., take --y bits_per_byte where tokenizers of one text differ, or say "
                "--any-data to go on all the same"
            )


def budgets_note(tokens: Iterable[float | None]) -> str | None:
    """Note for readers of the lowest loss if runs read different numbers of tokens; None if equal."""
    known = [count for count in tokens if count]
    if not known or max(known) <= min(known) * (1 + SAME_TOKENS):
        return None
    return (
        f"budgets differ ({format_count(round(min(known)))} to {format_count(round(max(known)))} tokens): "
        "a longer run is lower for that alone"
    )


def texts_note(runs: Sequence[Run], y: str) -> str | None:
    """Note that bits per byte compare only on one text, which is not recorded; None for one token set."""
    texts = {run.value("data") for run in runs if run.value("data") is not None}
    if y != "bits_per_byte" or len(texts) < 2:
        return None
    return (
        f"bits_per_byte of {len(texts)} token sets: it compares where they are tokenizations of one text, "
        "and says nothing where their texts differ"
    )


def at_tokens(runs: Sequence[Run], asked: float | None, y: str = "val_loss") -> tuple[list[Run], float]:
    """Runs as they were at their last evaluation within a number of tokens; runs without one are left out.

    Runs of ours have the tokens, flops, step, seconds, losses and bits per byte of that evaluation, runs of
    other programs the tokens and `y` of the last row that has both.

    Args:
        runs: The runs.
        asked: Tokens; None: the last number near which all runs were evaluated.
        y: The loss.

    Returns:
        (the runs, the number of tokens).

    Raises:
        UserError: no run has an evaluation there, or y is only known at the end of a run.
    """
    if any(run.is_ours for run in runs) and y not in _ON_THE_WAY:
        raise UserError(
            f"--at-tokens: {y} is known of the end of a run alone; on the way: {', '.join(_ON_THE_WAY)}"
        )
    curves, why = {}, ""  # by folder: the same run, started in two studies, has one name in both
    for run in runs:
        try:
            curves[run.folder] = curve(run, _OF_ROWS if run.is_ours else ["tokens", y])
        except UserError as error:
            why = why or str(error)
    points = {run.folder: _measured(run, curves[run.folder], y) for run in runs if run.folder in curves}
    points = {folder: tokens for folder, tokens in points.items() if len(tokens)}
    if not points:
        reason = f" ({why})" if why else ""
        raise UserError(f"no run has an evaluation yet: there is no common number of tokens{reason}")
    limit = _last_common([*points.values()]) if asked is None else asked
    made = [_as_it_was(run, curves[run.folder], limit, y) for run in runs if run.folder in points]
    found = [run for run in made if run is not None]
    if not found:
        raise UserError(f"no run has an evaluation within {format_count(limit)} tokens")
    return found, limit


def _last_common(measured: Sequence[Any]) -> float:
    """The last number of tokens near which all were evaluated, else the number that all reached."""
    import numpy as np

    shortest = min(measured, key=lambda tokens: float(tokens[-1]))
    for at in shortest[::-1]:
        nearest = [float(tokens[np.abs(tokens - at).argmin()]) for tokens in measured]
        if at > 0 and max(abs(one - at) for one in nearest) <= SAME_TOKENS * at:
            return max(nearest)
    return float(shortest[-1])


def _as_it_was(run: Run, known: dict[str, Any], limit: float, y: str) -> Run | None:
    loss = known["val_loss" if run.is_ours else y]
    rows = [row for row, tokens in enumerate(known["tokens"]) if tokens <= limit and math.isfinite(loss[row])]
    if not rows:
        return None
    last = {name: float(values[rows[-1]]) for name, values in known.items()}
    if not run.is_ours:
        return replace(run, values={**run.values, **last})
    there = {
        "best_val_loss": min(float(loss[row]) for row in rows),
        "val_at_tokens": last["tokens"], "diverged": not math.isfinite(last["train_loss"]),
        **_of_evaluation(run, last["tokens"]),
    }  # fmt: skip
    return replace(run, values={**run.values, **last, **there}, state="done")


def _of_evaluation(run: Run, tokens: float) -> dict[str, Any]:
    """Facts of an evaluation that are not in metrics.csv."""
    records = [record for record in RunFolder(run.folder).evals if record.get("tokens") == tokens]
    record = records[-1] if records else {}
    return {name: record.get(name) for name in ("bits_per_byte", "eval_tokens")}


def _measured(run: Run, found: dict[str, Any], y: str) -> Any:
    """Tokens at which the run was evaluated."""
    import numpy as np

    return found["tokens"][np.isfinite(found["val_loss" if run.is_ours else y])]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
