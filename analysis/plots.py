"""The two pictures of a run, drawn into its folder: loss over tokens and memory over time."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.figures import smoothed
from analysis.panels import panels_figure
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.json_values import integer, is_number
from experiment_utils.quantities import format_count
from experiment_utils.run_folder import RunFolder
from memory.report.chart import Axis, Chart, LimitLine, Mark, Series
from memory.report.data.history import read_history
from memory.report.drawing import own_style, save
from memory.report.run_report import attempt_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("analysis")

_MEANS = 50
"""The smoothed curve is a mean over one in this many parts of the steps."""
_SHOWN = ("metrics.csv", "evals.jsonl", "memory.jsonl", "memory.ring", "outcome.json", "run.json")


def draw_run(folder: Path) -> list[Path]:
    """Draw `loss.png` and `memory.png` into the run folder, as far as there is something to draw.

    Returns:
        The pictures drawn.

    Raises:
        OSError: the folder cannot be written.
    """
    run = RunFolder(folder)
    with own_style():
        figures = {"loss.png": loss_figure(run), "memory.png": memory_figure(run)}
        return [_save(figure, run.path / name) for name, figure in figures.items() if figure is not None]


def memory_figure(run: RunFolder) -> Figure | None:
    """Memory of the newest attempt, as `python -m memory report --png` draws it; None without records."""
    try:
        history = read_history(run.path)
    except UserError:
        return None
    return attempt_figure(history, history.last)


def draw_or_tell(folder: Path) -> list[Path]:
    """The same for a page, which without pictures is better than none: a failure is a warning."""
    try:
        return draw_run(folder)
    except Exception as error:
        log.warning("the pictures of %s cannot be drawn: %s: %s", folder, type(error).__name__, error)
        return []


def are_drawn(folder: Path) -> bool:
    """Whether the pictures are there and no older than what they show."""
    pictures = (folder / "loss.png", folder / "memory.png")
    shown = [path.stat().st_mtime_ns for name in _SHOWN if (path := folder / name).exists()]
    return all(path.exists() for path in pictures) and all(
        path.stat().st_mtime_ns >= max(shown, default=0) for path in pictures
    )


def loss_figure(run: RunFolder) -> Figure | None:
    """The figure, or None when the run has no finite loss yet."""
    chart = loss_chart(run)
    if chart is None:
        return None
    evals = [record for record in run.evals if math.isfinite(record["loss"])]
    caption = f"Mean of a batch of {format_count(_batch_tokens(run))} tokens at each step."
    if chart.y_axis.top is not None:
        caption += f" Cut off at {chart.y_axis.top:.3g}: the loss exploded."
    if evals and integer(evals[-1].get("eval_tokens")):
        caption += f" Validation: mean over {format_count(evals[-1]['eval_tokens'])} tokens."
    return panels_figure([("", chart)], run.name, caption)


def loss_chart(run: RunFolder) -> Chart | None:
    """Training loss of each step and its running mean, validation loss, and what both compare with.

    Returns:
        None when the run has no finite loss yet.
    """
    import numpy as np

    tokens, losses = np.asarray(run.column("tokens")), np.asarray(run.column("train_loss"))
    if not (len(tokens) and np.isfinite(losses).any()):
        return None
    x, window = tokens.tolist(), max(1, len(losses) // _MEANS)
    mean = "train" if window == 1 else f"train, mean of {window} steps"
    series = [Series(mean, smoothed(losses, window).tolist(), x=x, group=mean)]
    if window > 1:
        series.insert(
            0,
            Series("train, each step", losses.tolist(), "grey", x=x, group="train, each step", is_thin=True),
        )
    evals = [record for record in run.evals if math.isfinite(record["loss"])]
    if evals:
        at, found = [record["tokens"] for record in evals], [record["loss"] for record in evals]
        series += [
            Series("val", found, "red", dash=(1.5, 2), x=at, group="val"),
            Series("val", found, "red", "points", x=at, group="val"),
        ]
    lines = {"results.bigram_val_loss": "val of a bigram count model", "results.floor_loss": "floor"}
    limits = [
        LimitLine(value, f"{name} {value:.3f}", "soft")
        for path, name in lines.items()
        if (value := run.number(path)) is not None
    ]
    lost = tokens[~np.isfinite(losses)][:1].tolist()
    marks = [Mark(at, "not finite from here", is_bad=True) for at in lost]
    known = losses[np.isfinite(losses)].tolist()
    return Chart(
        "loss over tokens", (), series, Axis("tokens", "count", end=x[-1]),
        Axis("loss (nats per token)", "loss", scale="fit", top=_highest_worth_showing(run, known)), limits,
        marks=[*marks, *_undone(run)],
    )  # fmt: skip


def _undone(run: RunFolder) -> list[Mark]:
    """Steps that a rollback undid."""
    tokens_at = dict(zip(run.column("step"), run.column("tokens"), strict=False))
    found = []
    for record in run.json_lines("rollbacks.jsonl"):
        steps = record.get("undone")
        ends = [tokens_at.get(step) for step in steps if is_number(step)] if isinstance(steps, list) else []
        known = [at for at in ends if at is not None]
        if known:
            found.append(Mark(min(known), "undone by a rollback", until=max(known)))
    return found


def _batch_tokens(run: RunFolder) -> float:
    steps, tokens = run.column("step"), run.column("tokens")
    return tokens[-1] / steps[-1] if steps and steps[-1] else tokens[-1]


def _highest_worth_showing(run: RunFolder, losses: list[float]) -> float | None:
    """The limit for a loss that exploded, so that the rest is no flat line; None if none is needed."""
    guessing = math.log(max(1, run.number("vocab_size") or 1))
    reasonable = 1.5 * max(losses[0], guessing)
    return reasonable if max(losses) > 1.5 * reasonable else None


def _save(figure: Figure, path: Path) -> Path:
    with atomic_files.atomic_file(path) as file:
        save(figure, file)
    return path
