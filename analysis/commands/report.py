"""`python -m analysis report STUDY -o report.html`: one page to look at and to hand on."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from analysis.columns import y_column
from analysis.commands.shared import as_typed, new_parser, say_json, study_of, write
from analysis.reading.study import Study, versions_of
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

EXAMPLES = """\
examples:
  python -m analysis report lr_sweep                          writes report.html into the study's folder
  python -m analysis report runs/a runs/b -o ~/both.html
  python -m analysis report lr_sweep --where model=64d --json
  python -m analysis report curves/ --pattern '{model}_lr_{log10_lr}.csv' --x tokens -o curves.html

One file that loads nothing: mail it, keep it, print it. Its sections: docs/analysis-report.md."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = new_parser(
        subparsers, "report", "one HTML page of a study: summary, table, curves, memory, failures", EXAMPLES
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="default: report.html in the study's folder")
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write it and print its summary.

    Raises:
        UserError: there is no run, or the file cannot be written.
    """
    from analysis.report.study_page import report_of

    study = study_of(options)
    x, y = _columns(study, options)
    output = options.output or str(_default_place(study))
    given = as_typed(options)
    asked = [f"--{name} {shlex.quote(typed)}" for name in ("x", "y") if (typed := getattr(options, name))]
    command = " ".join(["python -m analysis report", given, *asked])
    report = report_of(study, command=command, given=given, x=x, y=y)
    write(report.page.html(), output)
    if options.json:
        say_json(
            {
                "version": 1, "report": output, "runs": len(study.runs),
                "best": None if report.best is None else report.best.name,
                "summary": [{"about": about, "lines": lines} for about, lines in report.words],
                "next": [{"command": typed, "why": why} for typed, why in report.next],
                "notes": report.notes, "code": versions_of(study.runs).to_json(),
            }
        )  # fmt: skip
        return DONE
    lines = [f"{about}\n" + "\n".join(f"  {line}" for line in lines) for about, lines in report.words]
    lines += (
        [f"note: not all could be read; the page lists {counted(len(report.notes), 'thing')}"]
        if report.notes
        else []
    )
    lines += ["next:", *(f"  {typed}   ({why})" for typed, why in report.next)] if report.next else []
    write("\n".join(lines) + "\n", None)
    return DONE


def _columns(study: Study, options: argparse.Namespace) -> tuple[str | None, str]:
    """(x, y). Of foreign files x may be unknown: then there are no curves."""
    x = study.column(options.x) if options.x else None
    return x, y_column(study, options.y)


def _default_place(study: Study) -> Path:
    """report.html in the folder of the first study."""
    return study.runs[0].folder.parent / "report.html"
