"""The page of a study, section by section: a file that loads nothing, or a page that follows running jobs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.memory_use import uses
from analysis.reading import Run, Study
from analysis.report.configs import add_configs
from analysis.report.curve_figure import Known, add_curves
from analysis.report.details import details_of
from analysis.report.failures import add_failures, failures
from analysis.report.families import families
from analysis.report.laws import add_law, law_of
from analysis.report.learning_rates import add_learning_rates
from analysis.report.memory_section import add_memory, highest
from analysis.report.origins import add_origins
from analysis.report.parallel import add_parallel
from analysis.report.runs import add_runs
from analysis.report.samples import add_samples
from analysis.report.summary_text import Found, best_run, budgets_of_best, kinds_of_data, states, words
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted, format_bytes, format_count, format_duration
from memory.report.page import Fact, Page

_HERE = Path(__file__).parent
_SCRIPTS = ("filter.js", "plot.js", "curves.js", "start.js")
_LIVE_SCRIPT = "../live/live.js"
_DAMAGED = 50
_COMMANDS = 5


@dataclass(frozen=True)
class Report:
    """A page and its summary."""

    page: Page
    words: list[tuple[str, list[str]]]
    """(question, lines that answer it)."""
    next: list[tuple[str, str]]
    """(command, its purpose)."""
    best: Run | None
    notes: list[str]
    """Files that could not be read."""


def report_of(
    study: Study, *, command: str, given: str, x: str | None = None, y: str = "val_loss",
    live: dict[str, Any] | None = None, known: Known | None = None,
) -> Report:  # fmt: skip
    """Make the page.

    Args:
        study: The runs.
        command: The command that wrote it, shown at the end.
        given: The study's runs as typed.
        x: Column of the curves of foreign runs.
        y: The loss.
        live: What live.js needs to follow the study; None: a page that does not change.
        known: Curves read before.
    """
    details = {row: details_of(run) for row, run in enumerate(study.runs) if run.is_ours}
    best, no_best = best_run(study, y)
    each = families(study, y) if kinds_of_data(study, y) <= 1 else None
    law, no_law = law_of(study, each, x, y) if each is not None and no_best is None else (None, None)
    found = Found(
        study, y, best, no_best, each, failures(study), uses(study.runs),
        law.words if law is not None else [no_law] if no_law else (),
        wall_s=sum(one.wall_s for one in details.values()),
    )  # fmt: skip
    answers, then, again = words(found), next_commands(found), _command_of(best)
    page = _new_page(study, command, is_live=live is not None)
    if live is not None:
        page.drawn("live", live)
    page.facts(_facts(found))
    page.heading("Summary")
    page.definitions(answers)
    if then:
        page.text("What to run next:")
        page.code("\n".join(f"{typed}   # {why}" for typed, why in then))
    add_runs(page, study, best if budgets_of_best(study, y) is None else None)
    notes = add_curves(page, study, x=x, y=y, known=known)
    add_parallel(page, study, y)
    if each is not None:
        add_learning_rates(page, each, y)
    add_law(page, law, given)
    add_samples(page, study, best)
    add_memory(page, study, found.uses, given)
    add_failures(page, found.failures)
    add_configs(page, study)
    add_origins(page, study, details, again)
    notes = _notes(study, notes)
    if notes:
        page.heading("Notes", "what could not be read, and is left out")
        page.items(notes[:_DAMAGED])
        if len(notes) > _DAMAGED:
            with page.folded(f"and {len(notes) - _DAMAGED} more"):
                page.items(notes[_DAMAGED:])
    return Report(page, answers, then, best, notes)


def _new_page(study: Study, command: str, *, is_live: bool) -> Page:
    scripts = [*_SCRIPTS, *[_LIVE_SCRIPT] * is_live]
    return Page(
        study.path.rstrip("/"), subtitle=subtitle(study),
        footer=f"Written by {command}. Losses in nats per token, sizes in powers of 1024.",
        script="\n".join((_HERE / name).read_text(encoding="utf-8") for name in scripts),
        style=(_HERE / "report.css").read_text(encoding="utf-8"), has_contents=True, may_fetch=is_live,
    )  # fmt: skip


def subtitle(study: Study) -> str:
    """`48 runs: 46 done, 1 oom, 1 failed`."""
    counts = states(study)
    return counted(len(study.runs), study.noun) + (f": {counts}" if counts else "")


def next_commands(found: Found) -> list[tuple[str, str]]:
    """(command, its purpose): missing runs first, then learning rates, then seeds and sizes."""
    study = found.study
    if not study.is_ours:
        return []
    folders = dict.fromkeys(run.folder.parent for one in found.failures for run in one.runs if not run.counts)
    commands = [
        (f"python -m slurm resubmit {shlex.quote(str(folder))}", "runs what is not done")
        for folder in folders
    ]
    try:
        commands += _advice(found)
        commands += _after(found)
    except UserError:  # of a configuration of another version
        pass
    return list(dict(commands).items())[:_COMMANDS]


def _advice(found: Found) -> list[tuple[str, str]]:
    """Commands that add learning rates."""
    from analysis.rates.advice import advice

    each = found.families.with_rates if found.families is not None else []
    bests = [family.best for family in each if family.best is not None]
    if not bests or found.families is None:
        return []
    # Trust says whether seeds are too few, and a command for each size takes seconds
    is_known = found.families.noise is not None
    commands = advice(found.study, bests, None, found.families.laws, asks_for_seeds=not is_known)
    return [
        (one.command, f"{one.size}: {one.what}" if one.size else one.what)
        for one in commands
        if one.command is not None and not one.command.startswith("python -m slurm")
    ]


def _after(found: Found) -> list[tuple[str, str]]:
    from analysis.next_steps import after_sweep
    from experiment_utils.run_folder import RunFolder

    seeds = sorted(found.study.runs, key=lambda run: run.number("seed") or 0)
    best = RunFolder(found.best.folder) if found.best is not None else None
    commands = after_sweep(best, 0, [RunFolder(seeds[-1].folder)])
    others = [one for one in commands if not one[0].startswith("python -m analysis report")]  # which this is
    return others[: 2 if best is not None else 1]


def _command_of(best: Run | None) -> str | None:
    if best is None or not best.is_ours:
        return None
    from analysis.next_steps import command_of
    from experiment_utils.run_folder import RunFolder

    try:
        return command_of(RunFolder(best.folder))
    except UserError:
        return None


def _facts(found: Found) -> list[Fact]:
    runs = found.study.runs
    facts = []
    if found.study.is_ours:
        done = sum(run.counts for run in runs)
        facts.append(Fact("runs done", f"{done:,} of {len(runs):,}", states(found.study)))
    if found.best is not None:
        where = found.best.name + (", of different budgets" if budgets_of_best(found.study, found.y) else "")
        facts.append(Fact(f"lowest {found.y}", f"{found.best.number(found.y) or 0:.4f}", where, tone="good"))
    tokens = sum(run.number("tokens") or 0 for run in runs)
    if tokens and found.study.is_ours:
        facts.append(Fact("tokens", format_count(tokens), "read by all runs"))
    if found.wall_s:
        facts.append(Fact("time", format_duration(found.wall_s), "of all attempts, start to end"))
    if found.uses:
        most = highest(found.uses)
        share = most.share
        of = f"{100 * share:.0f}% of {format_bytes(most.limit or 0)}" if share is not None else most.run.name
        facts.append(Fact("nearest to its limit", format_bytes(most.peak), of, share))
    return facts


def _notes(study: Study, more: Sequence[str]) -> list[str]:
    skipped = [f"{path}: {why}" for path, why in study.skipped]
    damaged = [f"{run.name}: {line}" for run in study.runs for line in run.damage]
    return [*skipped, *damaged, *more]
