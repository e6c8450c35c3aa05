"""`python -m analysis fit STUDY`: a scaling law, and how far to trust it."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import TYPE_CHECKING, Any

from analysis.commands.shared import new_parser, notes_and_failures, say_json, split, study_of, write
from conf import UserError
from conf.exit_status import DONE
from conf.quantities import counted

if TYPE_CHECKING:
    from analysis.fits.isoflop import IsoFlop
    from analysis.fits.points import Points
    from analysis.fits.result import Fit, Foretold
    from analysis.fits.trust import Interval
    from analysis.reading.study import Study

LAWS = ("power", "chinchilla", "isoflop", "envelope")
METHODS = ("least-squares", "huber")
DRAWS = 1000

EXAMPLES = """\
examples:
  python -m analysis fit scaling --x flops                       L = E + A x^-alpha
  python -m analysis fit scaling --x non_embedding --method huber
  python -m analysis fit scaling --x flops --fix E=1.9           a straight line in logs
  python -m analysis fit scaling --law chinchilla                L = E + A N^-alpha + B D^-beta
  python -m analysis fit scaling --law isoflop                   the best size at each compute
  python -m analysis fit scaling --law envelope                  of curves: the lowest loss at each compute
  python -m analysis fit scaling --x flops --at 1e18,1e19        what the law foretells there
  python -m analysis fit curves/ --x theoretical_flops --y validation_loss       CSVs of other programs

Runs of one x are seeds of one size and count as their mean. Intervals: 95%, from a bootstrap over sizes.
docs/analysis.md tells how each number is found, and when not to believe it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = new_parser(subparsers, "fit", "a scaling law of the losses, and how far to trust it", EXAMPLES)
    parser.add_argument("--law", choices=LAWS, default="power", help="default: power")
    parser.add_argument(
        "--method",
        choices=METHODS,
        help="default: least-squares of the loss; of chinchilla huber, of its log",
    )
    parser.add_argument(
        "--fix", metavar="E=VALUE", help="the loss that no size goes below, where it is known"
    )
    parser.add_argument(
        "--at", metavar="X,X", help="foretell the loss there (default: at 10 times the largest)"
    )
    parser.add_argument(
        "--size", metavar="COLUMN", help="N of chinchilla and isoflop (default: non_embedding)"
    )
    parser.add_argument("--tokens", metavar="COLUMN", help="D of chinchilla (default: tokens)")
    parser.add_argument("--draws", type=int, default=DRAWS, metavar="N", help=f"of the bootstrap ({DRAWS})")
    parser.add_argument("--any-data", action="store_true", help="also where runs saw different data")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: too few sizes, or losses that do not compare.
    """
    if not 20 <= options.draws <= 100_000:
        raise UserError(f"--draws {options.draws}: expected 20 to 100,000")
    study = study_of(options)
    told, lines = {
        "power": _power, "chinchilla": _chinchilla, "isoflop": _isoflop, "envelope": _envelope,
    }[options.law](study, options)  # fmt: skip
    if options.json:
        say_json(told)
    else:
        write("\n".join(lines) + "\n", None)
    return DONE


Answer = tuple[dict[str, Any], list[str]]


def _power(study: Study, options: argparse.Namespace) -> Answer:
    import numpy as np

    from analysis.fits.points import check_enough, points_of, x_column, y_column
    from analysis.fits.result import fit_power

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    points = points_of(study, x, y, any_data=options.any_data)
    fixed = _fixed(options.fix)
    check_enough(points, 3 if fixed is not None else 4, study)
    method = options.method or "least-squares"
    fit = fit_power(points, method=method, fixed_e=fixed, draws=options.draws)
    at = _numbers(options.at) or [10 * float(points.x.max())]
    foretold = [fit.foretell(np.array([one]), points.x) for one in at]
    formula = "L = E + A x^-alpha"
    told = _json(
        study, points, fit, foretold, options, {"law": "power", "method": method, "formula": formula}
    )
    lines = _page(study, points, fit, foretold, f"{formula}, {_how(method, fixed)}", options)
    doubt = _doubt_of_fixed(points, fixed)
    told["doubt"] = doubt
    if doubt:
        lines.insert(2, f"warning: {doubt}")
    return told, lines


def _doubt_of_fixed(points: Points, fixed: float | None) -> str | None:
    """Whether the data contradict an E that was given."""
    from dataclasses import replace

    from analysis.fits.power import PowerLaw
    from analysis.fits.trust import profile_of_e

    if fixed is None or len(points.x) < 5:
        return None
    law = PowerLaw.of(points.x)
    theta = law.fit(points.x, points.y)
    low, high = profile_of_e(law, theta, points.x, points.y, lambda e: replace(law, fixed_e=e))
    if low <= fixed <= high:
        return None
    return f"these data put E between {low:.3g} and {high:.3g}: {fixed:g} is outside"


def _chinchilla(study: Study, options: argparse.Namespace) -> Answer:
    import numpy as np

    from analysis.fits.chinchilla import MOST_CORRELATION, Chinchilla, correlation
    from analysis.fits.points import Points, check_enough, usable, y_column
    from analysis.fits.result import fit_law

    y = y_column(study, options.y)
    names = [study.column(options.size or "non_embedding"), study.column(options.tokens or "tokens")]
    runs, left_out = usable(study, names, y, any_data=options.any_data)
    x = np.array([[run.number(name) for name in names] for run in runs], dtype=np.float64).reshape(-1, 2)
    losses = np.array([run.number(y) for run in runs], dtype=np.float64)
    points = Points(
        [run.name for run in runs], np.arange(len(runs), dtype=np.float64), losses, [1] * len(runs),
        f"{names[0]}, {names[1]}", y, left_out, None,
    )  # fmt: skip
    check_enough(points, 6, study)
    together = correlation(x)
    if abs(together) > MOST_CORRELATION:
        raise UserError(
            f"{study.path}: {names[0]} and {names[1]} go together in these runs (correlation of their logs "
            f"{together:.3f}), so that their terms cannot be told apart: run some sizes on more and on fewer "
            "tokens (training.tokens_per_param=5,20,80), or fit --law power"
        )
    method = options.method or "huber"
    fit = fit_law(Chinchilla.of(x, method, _fixed(options.fix)), x, losses, points.names, draws=options.draws)
    formula = f"L = E + A N^-alpha + B D^-beta, N = {names[0]}, D = {names[1]}"
    told = {"law": "chinchilla", "method": method, "formula": formula}
    return (
        _json(study, points, fit, [], options, told),
        _page(study, points, fit, [], f"{formula}, {_how(method, _fixed(options.fix))}", options),
    )


def _isoflop(study: Study, options: argparse.Namespace) -> Answer:
    from analysis.fits.isoflop import isoflop
    from analysis.fits.points import usable, x_column, y_column

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    size = study.column(options.size or "non_embedding")
    runs, left_out = usable(study, [x, size], y, any_data=options.any_data)
    found = isoflop(runs, x, size, y)
    budgets = [
        {
            x: budget.flops, "sizes": len(budget.sizes),
            "best_size": budget.best[0] if budget.best else None,
            "best_loss": budget.best[1] if budget.best else None, "why_not": budget.why_not,
        }
        for budget in found.budgets
    ]  # fmt: skip
    told = {
        "version": 1, "study": study.path, "law": "isoflop", "x": x, "y": y, "size": size, "budgets": budgets,
        "exponent": found.exponent.to_json() if found.exponent else None, "factor": found.factor,
        "left_out": left_out,
    }  # fmt: skip
    lines = [f"{study.path}: best {size} at equal {x}, by parabolas of {y} over log {size}", ""]
    for budget in found.budgets:
        what = budget.why_not or (
            f"best {size} {budget.best[0]:,.0f}, loss {budget.best[1]:.4f}" if budget.best else ""
        )
        lines.append(f"  {budget.flops:>10.3g}  {counted(len(budget.sizes), 'size'):>8}  {what}")
    lines += ["", _split_of_compute(found, size, x), *notes_and_failures(study, left_out)]
    return told, lines


def _split_of_compute(found: IsoFlop, size: str, x: str) -> str:
    if found.exponent is None:
        return "one budget with a lowest point: a second one would tell how it moves with compute"
    sure = (
        f" ({found.exponent.low:.3f} to {found.exponent.high:.3f})"
        if math.isfinite(found.exponent.low)
        else " (two budgets only: no interval)"
    )
    return f"best {size} = {found.factor:.4g} {x}^{found.exponent.value:.3f}{sure}"


def _envelope(study: Study, options: argparse.Namespace) -> Answer:
    from analysis.fits.envelope import Curve, bootstrap_runs, envelope
    from analysis.fits.points import Points, usable, x_column, y_column
    from analysis.fits.power import PowerLaw
    from analysis.fits.result import fit_law
    from analysis.reading import curve

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    runs, left_out = usable(study, [x], y, any_data=options.any_data)
    curves = [Curve.of(run.name, *(curve(run, [x, y])[name] for name in (x, y))) for run in runs]
    found = envelope(curves)
    names = [runs[place].name for place in found.who]
    method = options.method or "least-squares"
    law = PowerLaw.of(found.x, method, _fixed(options.fix))
    theta = law.fit(found.x, found.y)
    drawn = bootstrap_runs(curves, law, theta, draws=min(options.draws, 200))
    if not len(drawn):
        raise UserError(f"{study.path}: too few runs are on the envelope to say how sure its law is")
    fit = fit_law(law, found.x, found.y, (), drawn=drawn)  # to leave one point of a curve out tells nothing
    points = Points(names, found.x, found.y, [1] * len(names), x, y, left_out, None)
    formula = "L = E + A x^-alpha of the lowest loss at each x"
    on_it = list(dict.fromkeys(names))
    told = _json(study, points, fit, [], options, {"law": "envelope", "method": method, "formula": formula})
    told["runs_on_it"] = on_it
    lines = _page(study, points, fit, [], f"{formula}, {_how(method, _fixed(options.fix))}", options)
    return told, [*lines, f"on the envelope: {', '.join(on_it)}"]


def _fixed(text: str | None) -> float | None:
    if text is None:
        return None
    name, _, value = text.partition("=")
    try:
        if name.strip() == "E":
            return float(value)
    except ValueError:
        pass
    raise UserError(f"--fix {text}: expected E=NUMBER, such as E=1.9")


def _numbers(text: str | None) -> list[float]:
    try:
        found = [float(part) for part in split(text)]
    except ValueError:
        found = [math.nan]
    if not all(math.isfinite(value) and value > 0 for value in found):
        raise UserError(f"--at {text}: expected numbers above 0 with commas between, such as 1e18,1e19")
    return found


def _how(method: str, fixed: float | None) -> str:
    if method == "huber":
        return "Huber's loss of log L" + (f", E fixed at {fixed:g}" if fixed is not None else "")
    return "least squares" if fixed is None else f"E fixed at {fixed:g}: a line through log(L - E) over log x"


def _json(
    study: Study,
    points: Points,
    fit: Fit,
    foretold: list[Foretold],
    options: argparse.Namespace,
    more: dict[str, Any],
) -> dict[str, Any]:
    values = {name: found.to_json() for name, found in fit.values.items()}
    low, high = fit.e_range
    if fit.law.fixed_e is None:
        values["E"] = {"value": fit.values["E"].value if fit.identified else None, "low": low, "high": high}
    return {
        "version": 1, "study": study.path, **more, "x": points.x_name, "x_unit": points.x_unit,
        "y": points.y_name,
        **values, "r2": fit.r2.to_json(), "identified": fit.identified, "fixed_E": fit.law.fixed_e,
        "huber": fit.robust or None, "draws": len(fit.drawn), "points": [
            {"run": name, "x": float(x), "y": float(y), "fitted": float(fitted),
             "residual": float(y - fitted), "seeds": seeds}
            for name, x, y, fitted, seeds in zip(
                points.names, points.x, points.y, fit.fitted, points.seeds, strict=True
            )
        ],
        "without": [{"run": left.name, **left.values, "error": left.error} for left in fit.left],
        "foretold": [
            {"x": one.x, **one.loss.to_json(), "times_beyond_data": one.times, "far": one.is_far}
            for one in foretold
        ],
        "seed_deviation": points.seed_deviation, "left_out": points.left_out, "notes": study.notes(),
    }  # fmt: skip


def _page(
    study: Study,
    points: Points,
    fit: Fit,
    foretold: list[Foretold],
    formula: str,
    options: argparse.Namespace,
) -> list[str]:
    import numpy as np

    residuals = points.y - fit.fitted
    freedom = len(points.y) - fit.law.free
    deviation = math.sqrt(float((residuals**2).sum()) / freedom) if freedom > 0 else 0.0
    lines = [
        f"{study.path}: {counted(len(points.y), 'size')}, L = {points.y_name}, x = {points.x_name} "
        f"({points.x_unit})",
        formula, "",
        f"{'':<8}{'value':>12}   95% interval (bootstrap, {len(fit.drawn):,} draws)",
        *(_line(name, found, fit) for name, found in fit.values.items()),
        f"{'R^2':<8}{fit.r2.value:>12.5f}",
    ]  # fmt: skip
    if fit.law.fixed_e is None and fit.identified:
        lines.append(f"E by its profile: {fit.e_range[0]:.3f} to {fit.e_range[1]:.3f}")
    elif fit.law.fixed_e is None:
        low, high = fit.e_range
        lines.append(
            f"E is not identified by these data: between {low:.2g} and {high:.2g}; the rest goes with it"
        )
    if fit.robust:
        told = ", ".join(f"{name} {value:.5g}" for name, value in fit.robust.items())
        lines.append(f"Huber's loss of log L instead: {told}")
    if fit.left and fit.law.fixed_e is None:
        least = min(fit.left, key=lambda left: left.values["E"])
        most = max(fit.left, key=lambda left: left.values["E"])
        lines.append(
            f"leaving one out: E from {least.values['E']:.3f} (without {least.name}) "
            f"to {most.values['E']:.3f} (without {most.name})"
        )
    worst = int(np.argmax(np.abs(residuals)))
    lines.append(
        f"residuals: s.d. {deviation:.4f}, the largest {residuals[worst]:+.4f} ({points.names[worst]})"
        + (
            f"; seeds of one size: s.d. {points.seed_deviation:.4f}"
            if points.seed_deviation is not None
            else ""
        )
    )
    for one in foretold:
        lines.append(f"at x = {one.x:.4g}: {one.loss.value:.4f} ({one.loss.low:.4f} to {one.loss.high:.4f})")
        if one.is_far:
            lines.append(f"  warning: {one.times:.3g} times beyond the data: the law may not hold so far")
    if len(points.y) <= 24:
        lines += ["", *_table(points, fit)]
    lines += ["", *notes_and_failures(study, points.left_out)]
    given = " ".join(map(shlex.quote, options.study))
    return [*lines, f"next: python -m analysis table {given}   (what each run is)"]


def _line(name: str, found: Interval, fit: Fit) -> str:
    if name == "E" and fit.law.fixed_e is not None:
        return f"{name:<8}{found.value:>12.6g}   fixed"
    if name == "E" and not fit.identified:
        return f"{name:<8}{'?':>12}   {found.low:.4g} to {found.high:.4g}"
    return f"{name:<8}{found.value:>12.5g}   {found.low:.4g} to {found.high:.4g}"


def _table(points: Points, fit: Fit) -> list[str]:
    width = max(map(len, points.names))
    errors = {left.name: left.error for left in fit.left}
    lines = [f"{'size':<{width}}  {'x':>10}  {'L':>8}  {'fitted':>8}  {'residual':>8}  error if left out"]
    for name, x, y, fitted in zip(points.names, points.x, points.y, fit.fitted, strict=True):
        error = f"{errors[name]:+.4f}" if name in errors else "-"
        lines.append(
            f"{name:<{width}}  {x:>10.4g}  {y:>8.4f}  {fitted:>8.4f}  {y - fitted:>+8.4f}  {error:>17}"
        )
    return lines
