"""The page that ends a sweep: a row a run, the best one marked, what failed and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.next_steps import after_sweep
from analysis.outcome import Outcome, diverged, how_to_go_on, outcome_of
from analysis.plots import are_drawn, draw_or_tell
from analysis.reading.fair import budgets_note
from analysis.terminal import STATE_STYLES, Terminal, commands, heading, indented
from conf.composing.check import check
from conf.composing.run_identity import varying_settings
from experiment_utils.display import table
from experiment_utils.quantities import counted, format_count, format_duration
from experiment_utils.run_folder import RunFolder
from training.attempt.made_by import Versions, codes_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class SweepRow:
    """A run of a sweep. Losses in nats a token, None until the first evaluation. seconds: of training."""

    run: RunFolder
    outcome: Outcome
    final_val_loss: float | None
    best_val_loss: float | None
    tokens: float | None
    seconds: float | None


KnownStates = Mapping[Path, tuple[str, str | None]]
"""State and reason by run folder, resolved, of who knows more than its files: what Slurm says of its job."""


def sweep_row(run: RunFolder, known: KnownStates | None = None) -> SweepRow:
    """The row of a run in the table of a sweep."""
    outcome = outcome_of(run)
    if known and (path := run.path.resolve()) in known:
        state, reason = known[path]
        outcome = replace(outcome, state=state, reason=None if state == "done" else reason)
    losses = [record["loss"] for record in run.evals]
    finite = [loss for loss in losses if math.isfinite(loss)]
    return SweepRow(
        run,
        outcome,
        final_val_loss=losses[-1] if losses else None,
        best_val_loss=min(finite, default=None),
        tokens=next(iter(run.column("tokens")[-1:]), None),
        seconds=next(iter(run.column("seconds")[-1:]), None),
    )


def best_row(rows: Sequence[SweepRow]) -> SweepRow | None:
    """The finished run with the lowest final val loss; None where the losses are of different tokens."""
    done = [
        row
        for row in rows
        if row.outcome.is_done and row.final_val_loss is not None and math.isfinite(row.final_val_loss)
    ]
    if not done or len({_measured_on(row.run) for row in done}) > 1:
        return None
    return min(done, key=lambda row: row.final_val_loss or 0.0)


def render_sweep(
    folders: Sequence[Path], *, known: KnownStates | None = None, color: bool | None = None
) -> str:
    """Draw the pictures of each run that are not there yet and return the page, in the order given.

    known: how runs stand; by default what their own files say.

    Raises:
        UserError: one of the folders is not there.
    """
    rows = [sweep_row(RunFolder(folder), known) for folder in folders]
    for folder in folders:
        if not are_drawn(folder):
            draw_or_tell(folder)
    return sweep_page(rows, Terminal.of_stdout(color))


def sweep_page(rows: Sequence[SweepRow], terminal: Terminal) -> str:
    """The page of a sweep as text."""
    from rich.text import Text

    failed = [row for row in rows if not row.outcome.is_done]
    best = best_row(rows)
    counts = f"{len(rows) - len(failed)} of {counted(len(rows), 'run')} done"
    style = "bold red" if failed else "bold green"
    parts: list[RenderableType] = [
        Text(terminal.rule(_study(rows), counts), style=style),
        *_rows(rows, best, terminal),
        *(indented(sentence) for sentence in [_about_best(rows, best)] if sentence),
        *(indented(f"Note: {note}") for note in _versions(rows).notes()),
        "",
    ]
    if failed:
        parts += [
            heading(f"Not done: {len(failed)}"),
            *(part for row in failed for part in _failure(row)),
            "",
        ]
    to_go_on = sum(not diverged(row.run) for row in failed)
    next_commands = after_sweep(best.run if best else None, to_go_on, [row.run for row in rows])
    return terminal.print(*parts, heading("Next"), commands(next_commands, terminal.width))


def _rows(rows: Sequence[SweepRow], best: SweepRow | None, terminal: Terminal) -> list[RenderableType]:
    from rich.text import Text

    star = "★" if terminal.unicode else "*"
    settings = _settings(rows) | _codes(rows)
    titles = ["  run", *settings, "state", "val loss", "best", "tokens", "training"]
    cells = [
        (
            f"{star if row is best else ' '} {row.run.name}",
            *(values[number] for values in settings.values()),
            row.outcome.state,
            _loss(row.final_val_loss),
            _loss(row.best_val_loss),
            "-" if row.tokens is None else format_count(row.tokens),
            "-" if row.seconds is None else format_duration(row.seconds),
        )
        for number, row in enumerate(rows)
    ]
    right = range(len(titles) - 4, len(titles))
    header, *lines = table(titles, cells, right=right, indent="  ", least=("training", "tokens", "best"))
    styles = ["bold" if row is best else _style(row) for row in rows]
    shown = [Text(line, style=style) for line, style in zip(lines, styles, strict=False)]
    return [Text(header, style="dim"), *shown, *(Text(line, style="dim") for line in lines[len(rows) :])]


def _style(row: SweepRow) -> str:
    return "" if row.outcome.is_done else STATE_STYLES.get(row.outcome.state, "")


def _settings(rows: Sequence[SweepRow]) -> dict[str, list[str]]:
    """Columns that tell the runs apart where their names do not; `-` where a config cannot be read."""
    known = [number for number, row in enumerate(rows) if row.run.config]
    varying = varying_settings(
        [check(rows[number].run.config, rules=(), is_saved=True)[0] for number in known]
    )
    by_row = {title: dict(zip(known, cells, strict=True)) for title, cells in varying.items()}
    return {title: [cells.get(number, "-") for number in range(len(rows))] for title, cells in by_row.items()}


def _codes(rows: Sequence[SweepRow]) -> dict[str, list[str]]:
    """Column of the versions of the code that made the runs; none if one version made all."""
    versions = _versions(rows)
    if not versions.are_several:
        return {}
    return {"code": [versions.name_of(codes_of(row.run.run)) or "unknown" for row in rows]}


def _versions(rows: Sequence[SweepRow]) -> Versions:
    return Versions((row.run.name, codes_of(row.run.run)) for row in rows)


def _about_best(rows: Sequence[SweepRow], best: SweepRow | None) -> str | None:
    if best is not None:
        note = budgets_note(row.tokens for row in rows if row.outcome.is_done)
        return f"Best: {best.run.name}, val loss {best.final_val_loss:.4f}" + (f"; {note}" if note else "")
    if sum(row.outcome.is_done and row.final_val_loss is not None for row in rows) > 1:
        return "No best run: they were evaluated on different tokens, so that their losses do not compare"
    return None


def _failure(row: SweepRow) -> list[RenderableType]:
    outcome = row.outcome
    at = f" at {outcome.steps}" if outcome.step is not None else ""
    line = f"{row.run.name}: {outcome.state}{at}: {outcome.reason or 'no reason is given'}"
    parts: list[RenderableType] = [indented(line, style=STATE_STYLES.get(outcome.state, ""))]
    if diverged(row.run):
        parts.append(indented(how_to_go_on(row.run), style="dim"))
    return parts


def _measured_on(run: RunFolder) -> tuple[object, ...]:
    """Values that must be equal for two validation losses to compare."""
    evaluated = run.evals[-1].get("eval_tokens") if run.evals else None
    return run.fact("data.fingerprint"), run.setting("training.seq_len"), evaluated


def _study(rows: Sequence[SweepRow]) -> str:
    folders = {row.run.path.parent for row in rows}
    return str(folders.pop()) if len(folders) == 1 else f"{len(folders)} studies"


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
