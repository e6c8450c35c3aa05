"""`python -m analysis fit STUDY`: a scaling law, and how far to trust it."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.columns import y_column
from analysis.commands.fit_answer import as_json, as_lines
from analysis.commands.pictures import picture_file, save_picture
from analysis.commands.shared import new_parser, notes_below, say_json, split, study_of, write
from experiment_utils.display import table
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

if TYPE_CHECKING:
    from analysis.fits.isoflop import IsoFlop
    from analysis.fits.points import Points
    from analysis.panels import Panels
    from analysis.reading.study import Study

LAWS = ("power", "chinchilla", "isoflop", "envelope")
METHODS = ("least-squares", "huber")
_OF_LAWS = {
    "x": ("power", "isoflop", "envelope"), "method": ("power", "chinchilla", "envelope"),
    "fix": ("power", "chinchilla", "envelope"), "at": ("power",), "size": ("chinchilla", "isoflop"),
    "tokens": ("chinchilla",),
}  # fmt: skip
"""Option -> the laws that it says something to."""
DRAWS = 1000

EXAMPLES = """\
examples:
  python -m analysis fit scaling --x flops                       L = E + A x^-alpha
  python -m analysis fit scaling --x non_embedding --method huber
  python -m analysis fit scaling --x flops --fix E=1.9           a straight line in logs
  python -m analysis fit scaling --law chinchilla                L = E + A N^-alpha + B D^-beta
  python -m analysis fit scaling --law isoflop                   the best size at each compute
  python -m analysis fit scaling --law envelope                  of curves: the lowest loss at each compute
  python -m analysis fit scaling --x flops -o fit.svg            and a picture of it
  python -m analysis fit scaling --x flops --at 1e18,1e19        what the law predicts there
  python -m analysis fit curves/ --x theoretical_flops --y validation_loss       CSVs of other programs

Runs of one x are seeds of one size and count as their mean. Intervals: 95%, from a bootstrap over sizes.
docs/analysis.md explains how each number is found and when not to trust it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
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
        "--at", metavar="X,X", help="predict the loss there (default: at 10 times the largest)"
    )
    parser.add_argument(
        "--size", metavar="COLUMN", help="N of chinchilla and isoflop (default: non_embedding)"
    )
    parser.add_argument("--tokens", metavar="COLUMN", help="D of chinchilla (default: tokens)")
    parser.add_argument("--draws", type=int, default=DRAWS, metavar="N", help=f"of the bootstrap ({DRAWS})")
    parser.add_argument("--any-data", action="store_true", help="also where runs saw different data")
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture of it: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
        UserError: too few sizes, or losses that do not compare.
    """
    if not 20 <= options.draws <= 100_000:
        raise UserError(f"--draws {options.draws}: expected 20 to 100,000")
    for name, laws in _OF_LAWS.items():
        if getattr(options, name) is not None and options.law not in laws:
            raise UserError(f"--{name}: --law {options.law} has no use for it; it is of {', '.join(laws)}")
    picture = picture_file(options.output) if options.output else None
    asked = Asked(_fixed(options.fix), _numbers(options.at))
    study = study_of(options)
    answer, lines, drawn = {
        "power": _power, "chinchilla": _chinchilla, "isoflop": _isoflop, "envelope": _envelope,
    }[options.law](study, options, asked)  # fmt: skip
    if picture is not None:
        from analysis.panels import panels_figure

        panels, caption = drawn()
        title = f"{study.path}: {options.law} law of {y_column(study, options.y)}"
        save_picture(picture, lambda: panels_figure(panels, title, caption, is_stacked=True))
        print(picture, file=sys.stderr)
    if options.json:
        say_json(answer)
    else:
        write("\n".join(lines) + "\n", None)
    return DONE


@dataclass(frozen=True)
class Asked:
    """Values of --fix and --at."""

    fixed: float | None
    at: list[float]


Answer = tuple[dict[str, Any], list[str], Callable[[], "tuple[Panels, str]"]]
"""(the JSON object, the lines of the page, the panels of the picture and their caption)."""


def _power(study: Study, options: argparse.Namespace, asked: Asked) -> Answer:
    import numpy as np

    from analysis.fit_plot import power_panels
    from analysis.fits.points import check_enough, points_of, x_column
    from analysis.fits.result import fit_power

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    points = points_of(study, x, y, any_data=options.any_data)
    fixed = asked.fixed
    check_enough(points, 3 if fixed is not None else 4, study)
    method = options.method or "least-squares"
    fit = fit_power(points, method=method, fixed_e=fixed, draws=options.draws)
    at = asked.at or [10 * float(points.x.max())]
    predictions = [fit.predict(np.array([one]), points.x) for one in at]
    formula = "L = E + A x^-alpha"
    answer = as_json(study, points, fit, predictions, {"law": "power", "method": method, "formula": formula})
    lines = as_lines(study, points, fit, predictions, f"{formula}, {_how(method, fixed)}", options)
    doubt = _doubt_of_fixed(points, fixed)
    answer["doubt"] = doubt
    if doubt:
        lines.insert(2, f"warning: {doubt}")
    return answer, lines, lambda: power_panels(points, fit, predictions)


def _doubt_of_fixed(points: Points, fixed: float | None) -> str | None:
    """Whether the data contradict an E that was given."""
    from dataclasses import replace

    from analysis.fits.power import PowerLaw
    from analysis.fits.uncertainty import profile_of_e

    if fixed is None or len(points.x) < 5:
        return None
    law = PowerLaw.of(points.x)
    theta = law.fit(points.x, points.y)
    low, high = profile_of_e(law, theta, points.x, points.y, lambda e: replace(law, fixed_e=e))
    if low <= fixed <= high:
        return None
    return f"these data put E between {low:.3g} and {high:.3g}: {fixed:g} is outside"


def _chinchilla(study: Study, options: argparse.Namespace, asked: Asked) -> Answer:
    import numpy as np

    from analysis.fit_plot import chinchilla_panels
    from analysis.fits.chinchilla import MOST_CORRELATION, Chinchilla, correlation
    from analysis.fits.points import Points, best_settings, check_enough, codes_of_points, unit_of, usable
    from analysis.fits.result import check_fixed, fit_law

    y = y_column(study, options.y)
    names = [study.column(options.size or "non_embedding"), study.column(options.tokens or "tokens")]
    runs, left_out = usable(study, names, y, any_data=options.any_data)
    groups, others, settings = best_settings(study, runs, names, y)
    runs = [run for group in groups for run in group]
    x = np.array([[run.number(name) for name in names] for run in runs], dtype=np.float64).reshape(-1, 2)
    losses = np.array([run.number(y) for run in runs], dtype=np.float64)
    points = Points(
        [run.name for run in runs], np.arange(len(runs), dtype=np.float64), losses, [1] * len(runs),
        f"{names[0]}, {names[1]}", y, left_out, None, tuple(run.name for run in others), tuple(settings),
        x, "; ".join(dict.fromkeys(unit_of(study, name) for name in names)),
        codes_of_points([[run] for run in runs]),
    )  # fmt: skip
    check_enough(points, 6, study)
    together = correlation(x)
    if abs(together) > MOST_CORRELATION:
        raise UserError(
            f"{study.path}: {names[0]} and {names[1]} go together in these runs (correlation of their logs "
            f"{together:.3f}), so that their terms cannot be separated: run some sizes on more and on fewer "
            "tokens (training.max_steps=200,600,1800), or fit --law power"
        )
    method = options.method or "huber"
    check_fixed(asked.fixed, losses)
    law = Chinchilla.of(x, method, asked.fixed)
    fit = fit_law(law, x, losses, points.names, draws=options.draws)
    formula = f"L = E + A N^-alpha + B D^-beta, N = {names[0]}, D = {names[1]}"
    answer = {"law": "chinchilla", "method": method, "formula": formula}
    lines = as_lines(
        study, points, fit, [], f"{formula}, {_how(method, asked.fixed)}", options,
        count=counted(len(runs), "run"),
    )  # fmt: skip
    return (
        as_json(study, points, fit, [], answer),
        lines,
        lambda: chinchilla_panels(law, fit, x, losses, names, y),
    )


def _isoflop(study: Study, options: argparse.Namespace, asked: Asked) -> Answer:
    from analysis.fit_plot import isoflop_panels
    from analysis.fits.isoflop import isoflop
    from analysis.fits.points import best_settings, others_note, usable, x_column
    from analysis.reading.study import versions_of

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    size = study.column(options.size or "non_embedding")
    runs, left_out = usable(study, [x, size], y, any_data=options.any_data)
    groups, others, settings = best_settings(study, runs, [size, x], y)
    found = isoflop([run for group in groups for run in group], x, size, y)
    notes = [*study.notes(), *others_note(others, settings, f"{size} and {x}", y)]
    budgets = [
        {
            x: budget.flops, "sizes": len(budget.sizes),
            "best_size": budget.best[0] if budget.best else None,
            "best_loss": budget.best[1] if budget.best else None, "why_not": budget.why_not,
        }
        for budget in found.budgets
    ]  # fmt: skip
    answer = {
        "version": 1, "study": study.path, "law": "isoflop", "x": x, "y": y, "size": size, "budgets": budgets,
        "exponent": found.exponent.to_json() if found.exponent else None, "factor": found.factor,
        "left_out": left_out, "other_settings": [run.name for run in others], "notes": notes,
        "code": versions_of(study.runs).to_json(),
    }  # fmt: skip
    lines = [f"{study.path}: best {size} at equal {x}, by parabolas of {y} over log {size}", ""]
    rows = []
    for budget in found.budgets:
        best = f"best {size} {budget.best[0]:,.0f}, loss {budget.best[1]:.4f}" if budget.best else ""
        rows.append((f"{budget.flops:.3g}", counted(len(budget.sizes), "size"), budget.why_not or best))
    lines += table((), rows, right=(0, 1), indent="  ")
    lines += ["", _split_of_compute(found, size, x), *notes_below(notes, left_out)]
    return answer, lines, lambda: isoflop_panels(found, size, x, y)


def _split_of_compute(found: IsoFlop, size: str, x: str) -> str:
    if found.exponent is None:
        return "one budget with a lowest point: a second one would show how it moves with compute"
    sure = (
        f" ({found.exponent.low:.3f} to {found.exponent.high:.3f})"
        if math.isfinite(found.exponent.low)
        else " (two budgets only: no interval)"
    )
    return f"best {size} = {found.factor:.4g} {x}^{found.exponent.value:.3f}{sure}"


def _envelope(study: Study, options: argparse.Namespace, asked: Asked) -> Answer:
    from analysis.fit_plot import power_panels
    from analysis.fits.envelope import Curve, bootstrap_runs, envelope
    from analysis.fits.points import Points, codes_of_points, unit_of, usable, x_column
    from analysis.fits.result import fit_law, power_law
    from analysis.reading import curve

    x, y = x_column(study, options.x, "flops"), y_column(study, options.y)
    runs, left_out = usable(study, [x], y, any_data=options.any_data)
    curves = [Curve.of(run.name, *(curve(run, [x, y])[name] for name in (x, y))) for run in runs]
    found = envelope(curves)
    names = [runs[place].name for place in found.who]
    method = options.method or "least-squares"
    law = power_law(found.x, found.y, method, asked.fixed)
    theta = law.fit(found.x, found.y)
    drawn = bootstrap_runs(curves, law, theta, draws=min(options.draws, 200))
    if not len(drawn):
        raise UserError(f"{study.path}: too few runs are on the envelope to say how sure its law is")
    fit = fit_law(law, found.x, found.y, (), drawn=drawn)  # leaving out one point of a curve shows nothing
    points = Points(
        names, found.x, found.y, [1] * len(names), x, y, left_out, None, x_unit=unit_of(study, x),
        codes=codes_of_points([[runs[place]] for place in found.who]),
    )  # fmt: skip
    formula = "L = E + A x^-alpha of the lowest loss at each x"
    on_it = list(dict.fromkeys(names))
    answer = as_json(study, points, fit, [], {"law": "envelope", "method": method, "formula": formula})
    answer["runs_on_it"] = on_it
    lines = as_lines(
        study, points, fit, [], f"{formula}, {_how(method, asked.fixed)}", options,
        count=f"{counted(len(names), 'point')} of {counted(len(curves), 'run')}",
        more=[f"on the envelope: {', '.join(on_it)}"],
    )  # fmt: skip
    return answer, lines, lambda: power_panels(points, fit, [])


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
