"""`python -m analysis best-lr STUDY`: the best learning rate of each size, the law over width, what next."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.commands.shared import new_parser, notes_below, say_json, study_of, tokens_asked, write
from experiment_utils.display import table
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

if TYPE_CHECKING:
    from analysis.rates.advice import Advice
    from analysis.rates.best import Best, Noise
    from analysis.rates.law import RateLaw
    from analysis.reading.study import Run, Study

EXAMPLES = """\
examples:
  python -m analysis best-lr lr_sweep
  python -m analysis best-lr lr_sweep --where model=64d --json
  python -m analysis best-lr lr_sweep --at-tokens common       of runs that go on too
  python -m analysis best-lr curves/ --pattern '{model}_lr_{log10_lr}.csv' --y validation_loss

The best is the vertex of the parabola in log10 lr through the lowest loss and its two neighbours. Its
interval ends, on each side, at the nearest rate whose loss is higher by more than seeds explain."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(
        subparsers, "best-lr", "the best learning rate of each size, and what to run next", EXAMPLES
    )
    parser.add_argument("--lr", metavar="COLUMN", help="the learning rate (default: lr)")
    parser.add_argument(
        "--size", metavar="COLUMN", default="model", help="the column that names a size (model)"
    )
    parser.add_argument(
        "--at-tokens",
        metavar="COUNT",
        help="take losses there: a number such as 5M, or `common`, what all reached",
    )
    parser.add_argument("--any-data", action="store_true", help="also where runs saw different data")
    parser.add_argument("--json", action="store_true", help="an object a size")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: no rates, or losses that do not compare.
    """
    from analysis.rates.advice import advice, what_lacks
    from analysis.rates.best import best_of, noise_of
    from analysis.rates.grid import sizes_of
    from analysis.rates.law import rate_laws
    from analysis.reading.fair import texts_note
    from analysis.setups import setup_columns

    study = study_of(options)
    lr, y, budget = _columns(study, options)
    runs, left_out, pending = _runs(study, lr, y, options)
    model = study.column(options.size) if study.is_ours else options.size
    apart = setup_columns(study, runs, model, lr)
    sizes = sizes_of(runs, lr, y, model=model, budget=budget, apart=apart, pending=pending)
    rates = {rate.lr for size in sizes for rate in size.rates}
    if len(rates) < 3:
        lost = [line for line in left_out if not any(line.startswith(f"{run.name}:") for run in pending)]
        left = f" ({counted(len(lost), 'run')} left out: {'; '.join(lost[:3])})" if lost else ""
        raise UserError(
            f"{study.path}: needs runs at >= 3 learning rates ({lr}), has {len(rates)}{left}"
            f"{what_lacks(study, sorted(rates), pending)}"
        )
    noise = noise_of(sizes)
    found = [best_of(size, noise) for size in sizes]
    laws = rate_laws(found)
    note = texts_note(runs, y)
    todo = advice(study, found, noise, laws)
    if options.json:
        say_json(_json(study, found, noise, laws, todo, left_out, note, y))
    else:
        write("\n".join(_page(study, found, noise, laws, todo, left_out, note, y)) + "\n", None)
    return DONE


def _columns(study: Study, options: argparse.Namespace) -> tuple[str, str, str]:
    """Columns of the rate, the loss and the budget. --x can name the rate or the budget of a size."""
    from analysis.columns import y_column

    x = study.column(options.x) if options.x else None
    is_rate = x is not None and (x == "lr" or x.endswith((".lr", "_lr")) or "learning" in x)
    lr = options.lr or (x if is_rate and x is not None and not x.startswith("log10_") else "lr")
    try:
        lr = study.column(lr)
    except UserError as error:
        if study.is_ours:
            raise
        raise UserError(
            f"{error}. Where file names tell it: --pattern '{{model}}_lr_{{log10_lr}}.csv'; else --lr COLUMN"
        ) from error
    budget = x if x is not None and not is_rate else "budget_tokens" if study.is_ours else "tokens"
    return lr, y_column(study, options.y), budget


def _runs(
    study: Study, lr: str, y: str, options: argparse.Namespace
) -> tuple[list[Run], list[str], list[Run]]:
    """(runs with a rate that went to their end or diverged, a line for each other, those that did not)."""
    from analysis.reading.fair import at_tokens, check_losses_compare

    runs, left_out = [], []
    for one in study.once():
        if (one.number(lr) or 0.0) <= 0:
            why = one.why_not if one.state == "unreadable" else f"it has no number above 0 in {lr}"
            left_out.append(f"{one.name}: {why}")
        else:
            runs.append(one)
    with_rate = runs
    if options.at_tokens is not None:
        found, limit = at_tokens(
            [one for one in runs if not one.has_diverged], tokens_asked(options.at_tokens), y
        )
        names = {one.folder for one in found}
        left_out += [
            f"{one.name}: no evaluation within {limit:,.0f} tokens"
            for one in runs
            if one.folder not in names and not one.has_diverged
        ]
        runs = found + [one for one in runs if one.has_diverged]
    else:
        left_out += [f"{one.name}: {one.why_not}" for one in runs if not one.counts and not one.has_diverged]
        runs = [one for one in runs if one.counts or one.has_diverged]
        left_out += [f"{one.name}: it has no number in {y}" for one in runs if _lacks(one, y)]
        runs = [one for one in runs if not _lacks(one, y)]
    if not options.any_data:
        check_losses_compare([one for one in runs if not one.has_diverged], y)
    used = {one.folder for one in runs}
    return runs, left_out, [one for one in with_rate if one.folder not in used]


def _lacks(run: Run, y: str) -> bool:
    return run.number(y) is None and not run.has_diverged


def _json(
    study: Study,
    found: list[Best],
    noise: Noise | None,
    laws: Mapping[str, RateLaw],
    todo: list[Advice],
    left_out: list[str],
    note: str | None,
    y: str,
) -> list[dict[str, Any]]:
    """One object a size. Facts of the study are in each, a law in those of its setup."""
    law_of = {
        setup: {
            "formula": "best_lr = factor * width ** exponent", "factor": law.factor,
            "exponent": law.exponent.to_json(), "r2": law.r2, "sizes": law.sizes,
        }
        for setup, law in laws.items()
    }  # fmt: skip
    of_all = {
        "study": study.path, "y": y,
        "noise": None if noise is None else {
            "deviation": noise.deviation, "freedom": noise.freedom
        },
        "left_out": left_out, "notes": [*study.notes(), *([note] if note else [])],
    }  # fmt: skip
    from analysis.reading.study import versions_of

    return [
        {
            "version": 1, "model": best.size.model, "setup": best.size.setup or None,
            "best_lr": best.lr, "low": best.low, "high": best.high,
            "budget": best.size.budget or None, "width": best.size.width, "inside": best.is_inside,
            "edge": best.edge, "why_not": best.why_not,
            "diverged": [rate.lr for rate in best.size.rates if rate.has_diverged],
            "rates": [
                {"lr": rate.lr, "losses": [*rate.losses], "diverged": [*rate.lost], "half": rate.half}
                for rate in best.size.rates
            ],
            "next": [
                {"what": one.what, "command": one.command}
                for one in todo
                if one.size in (best.size.name, None)
            ],
            "pending": [*best.size.pending], "law": law_of.get(best.size.setup),
            "code": versions_of(best.size.runs).to_json(), **of_all,
        }
        for best in found
    ]  # fmt: skip


def _page(
    study: Study,
    found: list[Best],
    noise: Noise | None,
    laws: Mapping[str, RateLaw],
    todo: list[Advice],
    left_out: list[str],
    note: str | None,
    y: str,
) -> list[str]:
    codes = _codes(study, found)
    titles = ("size", "best lr", "95% interval", "least loss", *(["code"] if codes else []), "rates")
    rows = [_row(best, codes[place : place + 1]) for place, best in enumerate(found)]
    lines = [
        f"{study.path}: best learning rate by {y}, of {counted(len(found), _noun(found))}",
        "",
        *table(titles, rows, right=(1, 3)),
        "",
        _about_noise(noise),
    ]
    for setup, law in laws.items():
        lines.append(f"law{f' of {setup}' if setup else ''}: {law.words}")
    for best in found:
        half = [f"{rate.lr:.3g}" for rate in best.size.rates if rate.half]
        if half:
            lines.append(
                f"note: {best.size.name} has half diverged at {', '.join(half)}, where its curve ends"
            )
    lines += notes_below([*study.notes(), *([note] if note else [])], left_out)
    for one in todo:
        lines.append(f"{f'{one.size}: ' if one.size else ''}{one.what}")
        if one.command:
            lines.append(f"  {one.command}")
    return lines


def _codes(study: Study, found: list[Best]) -> list[str]:
    """Versions of the code that made the runs of each size; empty if one version made all of them."""
    from analysis.reading.study import versions_of

    if not versions_of(study.runs).are_several:
        return []
    return [
        ", ".join(dict.fromkeys(str(run.value("code") or "unknown") for run in best.size.runs))
        for best in found
    ]


def _noun(found: list[Best]) -> str:
    return "setup" if any(best.size.setup for best in found) else "size"


def _row(best: Best, code: Sequence[str]) -> tuple[str, ...]:
    rates = best.size.rates
    details = f"{len(rates)}, {rates[0].lr:.3g} to {rates[-1].lr:.3g}"
    lost = best.size.diverged_at
    details += f"; diverged: {', '.join(lost)}" if lost else ""
    if best.lr is None:
        return (best.size.name, "-", "-", "-", *code, details)
    loss = float(best.size.y.min()) if len(best.size.y) else math.nan
    edge = f" ({'<' if best.edge == 'low' else '>'} the grid)" if best.edge else ""
    return (best.size.name, f"{best.lr:.4g}", best.interval, f"{loss:.4f}", *code, details + edge)


def _about_noise(noise: Noise | None) -> str:
    if noise is None:
        return (
            "? no rate near a best has two seeds: how much seeds differ is not known, so that intervals "
            "reach 3 times lower and higher"
        )
    return f"seeds of one rate near the best: s.d. {noise.deviation:.4f} ({noise.freedom} degrees of freedom)"
