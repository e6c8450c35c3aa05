"""`python -m analysis compare A B`: is one better than the other, or is it chance."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from analysis.commands.shared import new_parser, say_json, tokens_asked, write
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

if TYPE_CHECKING:
    from analysis.comparison import Comparison, Group
    from analysis.reading.study import Run, Study
    from training.attempt.made_by import Versions

EXAMPLES = """\
examples:
  python -m analysis compare runs/adamw runs/muon              two studies, seeds paired
  python -m analysis compare lr_sweep --by optimizer.lr        the groups of one study
  python -m analysis compare 1a2b3c4d 5e6f7a8b                 two runs: what differs, no test
  python -m analysis compare runs/a runs/b --at-tokens common  where all have been

The difference of mean losses with its 95% interval and p: of pairs by a paired t-test, else by a t-test of
the means, with the degrees of freedom of the smaller group.
Several groups are each compared with the first, and p is corrected for how many (Holm)."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(subparsers, "compare", "is one way of training better, or is it chance", EXAMPLES)
    parser.add_argument("--by", metavar="COLUMN", help="groups of one study: runs of one value there")
    parser.add_argument(
        "--at-tokens", metavar="COUNT", help="take losses there: 5M, or `common`, what all reached"
    )
    parser.add_argument("--any-data", action="store_true", help="also of different data or budgets")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: fewer than two groups, or runs that do not compare.
    """
    from analysis.columns import y_column
    from analysis.comparison import check_budgets, compare, differing
    from analysis.fits.points import usable
    from analysis.reading.fair import at_tokens, check_losses_compare, texts_note
    from analysis.reading.study import versions_of

    studies = _studies(options)
    y = y_column(studies[0], options.y)
    left_out: list[str] = []
    kept: list[list[Run]] = []
    limit = None
    if options.at_tokens is not None:
        every = [one for study in studies for one in study.once() if not one.has_diverged]
        found, limit = at_tokens(every, tokens_asked(options.at_tokens), y)
        by_folder = {one.folder: one for one in found}
        for study in studies:
            kept.append([by_folder[one.folder] for one in study.once() if one.folder in by_folder])
            left_out += [
                f"{one.name}: " + (f"no evaluation within {limit:,.0f} tokens" if one.counts else one.why_not)
                for one in study.once()
                if one.folder not in by_folder
            ]
    else:
        for study in studies:
            runs, others = usable(study, [], y, any_data=True)
            kept.append(runs)
            left_out += others
    groups = _groups(studies, kept, options.by)
    if not options.any_data:
        check_losses_compare([one for group in groups for one in group.runs], y)
        check_budgets(groups, is_common=options.at_tokens == "common")
    comparisons, apart = compare(groups, y), differing(groups)
    compared = [one for group in groups for one in group.runs]
    note, versions = texts_note(compared, y), versions_of(compared)
    apart |= _codes(groups, versions)
    notes = [line for study in studies for line in study.notes(with_code=False)]
    notes += [*versions.notes(), *([note] if note else [])]
    if options.json:
        plain = _json(groups, comparisons, apart, left_out, notes, y, limit)
        say_json({**plain, "code": versions.to_json()})
    else:
        write("\n".join(_page(groups, comparisons, apart, left_out, notes, y, limit)) + "\n", None)
    return DONE


def _studies(options: argparse.Namespace) -> list[Study]:
    from analysis.reading.filters import only
    from analysis.reading.study import read_study

    if options.by is None and len(options.study) < 2:
        raise UserError(
            f"compare {options.study[0]}: expected two studies or runs, or --by COLUMN for the groups "
            "of one, such as --by optimizer.lr"
        )
    given = [options.study] if options.by is not None else [[one] for one in options.study]
    return [only(read_study(one, pattern=options.pattern, rows=options.rows), options.where) for one in given]


def _codes(groups: list[Group], versions: Versions) -> dict[str, list[str]]:
    """The versions of the code that made the runs of each group; empty if one version made all."""
    if not versions.are_several:
        return {}
    named = [{versions.name_of(run.codes) or "unknown": None for run in group.runs} for group in groups]
    return {"code": [", ".join(names) for names in named]}


def _groups(studies: list[Study], kept: list[list[Run]], by: str | None) -> list[Group]:
    from analysis.comparison import Group
    from analysis.run_table import ordered

    if by is None:
        found = [Group(study.path, tuple(runs)) for study, runs in zip(studies, kept, strict=True)]
        empty = [group.name for group in found if not group.runs]
        if empty:
            raise UserError(f"{', '.join(empty)}: no run that counts: none is done with a finite loss")
        return found
    column = studies[0].column(by)
    values: dict[str, list[Run]] = {}
    for one in ordered(kept[0], column):
        values.setdefault(f"{by}={_shown(one.value(column))}", []).append(one)
    if len(values) < 2:
        raise UserError(
            f"--by {by}: all {len(kept[0])} runs that count have one value there: nothing to compare"
        )
    return [Group(name, tuple(runs)) for name, runs in values.items()]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _json(
    groups: list[Group],
    comparisons: list[Comparison],
    apart: dict[str, list[str]],
    left_out: list[str],
    notes: list[str],
    y: str,
    limit: float | None,
) -> dict[str, Any]:
    import statistics

    return {
        "version": 1, "y": y, "at_tokens": limit,
        "groups": [
            {
                "name": group.name, "runs": [one.name for one in group.runs],
                "mean": statistics.fmean(group.losses(y)),
                "deviation": statistics.stdev(group.losses(y)) if len(group.runs) > 1 else None,
            }
            for group in groups
        ],
        "differ_in": apart,
        "comparisons": [
            {
                "a": one.a, "b": one.b, "difference": one.difference, "low": one.low, "high": one.high,
                "p": one.p, "paired": one.paired, "pairs": [vars(pair) for pair in one.pairs],
                "alone": [*one.alone], "verdict": one.verdict,
            }
            for one in comparisons
        ],
        "left_out": left_out, "notes": notes,
    }  # fmt: skip


def _page(
    groups: list[Group],
    comparisons: list[Comparison],
    apart: dict[str, list[str]],
    left_out: list[str],
    notes: list[str],
    y: str,
    limit: float | None,
) -> list[str]:
    import statistics

    at = f" at {limit:,.0f} tokens" if limit is not None else ""
    lines = [f"{y}{at}, the lower the better", ""]
    width = max(len(group.name) for group in groups)
    for group in groups:
        losses = group.losses(y)
        spread = f", s.d. {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        lines.append(
            f"  {group.name:<{width}}  {statistics.fmean(losses):.4f}  {counted(len(losses), 'run')}{spread}"
        )
    lines += ["", "differ in:" if apart else "their configurations do not differ in what makes another run"]
    lines += [f"  {name}: {' -> '.join(values)}" for name, values in apart.items()]
    for one in comparisons:
        lines.append("")
        if one.p is None or one.low is None or one.high is None:
            lines.append(f"{one.b} - {one.a} = {one.difference:+.4f}")
        else:
            how = (
                f"{len(one.pairs)} pairs"
                if one.paired
                else f"{one.counts[1]} and {one.counts[0]} runs, not paired"
            )
            lines.append(
                f"{one.b} - {one.a} = {one.difference:+.4f} (95%: {one.low:+.4f} to {one.high:+.4f}), "
                f"p = {one.p:.3g}, {how}"
            )
        lines.append(f"  {one.verdict}")
        if len(one.pairs) <= 12:
            lines += [
                f"  {pair.what}: {pair.a:.4f} -> {pair.b:.4f} ({pair.b - pair.a:+.4f})" for pair in one.pairs
            ]
        if one.alone:
            lines.append(
                f"  without a partner and not in the difference: {counted(len(one.alone), 'run')}: "
                f"{', '.join(one.alone[:4])}" + (", ..." if len(one.alone) > 4 else "")
            )
    below = [f"note: {line}" for line in notes] + [f"left out: {line}" for line in left_out]
    return [*lines, "", *below] if below else lines
