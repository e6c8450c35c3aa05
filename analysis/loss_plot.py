"""Training and validation loss over tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.figures import count_unit, smoothed
from experiment_utils.run_folder import RunFolder
from memory.report.colors import BLUE, LIGHT_GREY, VERMILLION
from memory.report.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEANS = 50
"""The smoothed curve is a mean over one in so many parts of the steps."""


def loss_figure(run: RunFolder) -> Figure | None:
    """The figure, or None when the run has no finite loss yet."""
    import numpy as np

    tokens, losses = np.asarray(run.column("tokens")), np.asarray(run.column("train_loss"))
    if not (len(tokens) and np.isfinite(losses).any()):
        return None
    figure = new_figure()
    axes = figure.subplots()
    unit, of_unit = count_unit(tokens[-1])
    tokens = tokens / unit
    window = max(1, len(losses) // _MEANS)
    if window > 1:
        axes.plot(tokens, losses, color=LIGHT_GREY, linewidth=0.8, label="train, each step", gid="steps")
    mean = smoothed(losses, window)
    axes.plot(
        tokens,
        mean,
        color=BLUE,
        linewidth=1.8,
        label=f"train, mean of {window} steps" if window > 1 else "train",
    )
    evaluated = [
        (record["tokens"] / unit, record["loss"]) for record in run.evals if math.isfinite(record["loss"])
    ]
    if evaluated:
        axes.plot(
            *zip(*evaluated, strict=True), color=VERMILLION, linewidth=1.0, linestyle=":", marker="o",
            markersize=5, markeredgecolor="black", markeredgewidth=0.6, label="val", gid="val",
        )  # fmt: skip
    bigram = run.number("results.bigram_val_loss")
    if bigram is not None:
        axes.axhline(
            bigram,
            color="black",
            linewidth=1.0,
            linestyle=(0, (6, 3)),
            label="val of a bigram count model",
            gid="bigram",
        )
    floor = run.number("results.floor_loss")
    if floor is not None:
        axes.axhline(floor, color="black", linewidth=1.0, label="floor: entropy of the tokens")
    lost = np.flatnonzero(~np.isfinite(losses))
    if len(lost):
        axes.axvline(
            tokens[lost[0]],
            color="black",
            linewidth=1.2,
            linestyle=(0, (1, 1)),
            label="not finite from here",
            gid="not-finite",
        )
    known = losses[np.isfinite(losses)].tolist()
    highest = _highest_worth_showing(run, known)
    if highest is not None:
        others = [loss for _, loss in evaluated] + [line for line in (bigram, floor) if line is not None]
        lowest = min([*known, *others])
        axes.set_ylim(lowest - 0.05 * (highest - lowest), highest)
    axes.set_xlim(0, tokens[-1] * 1.02)
    axes.set_xlabel(f"tokens{of_unit}")
    axes.set_ylabel("loss (nats a token)")
    if len(lost) or highest is not None:  # the curve rises into the corner that is free in others
        figure.legend(loc="outside lower center", ncols=2)
    else:
        axes.legend(loc="upper right")
    axes.set_title(run.name)
    return figure


def _highest_worth_showing(run: RunFolder, losses: list[float]) -> float | None:
    """A limit for a loss that exploded: what it was before would be a flat line; None when none is needed."""
    guessing = math.log(max(1, run.number("vocab_size") or 1))
    reasonable = 1.5 * max(losses[0], guessing)
    return reasonable if max(losses) > 1.5 * reasonable else None
