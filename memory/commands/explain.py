"""`explain`: why a run died, or how close it was, and what to change."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

from experiment_utils.arguments import find_run, path_of
from experiment_utils.errors import UserError
from memory.accounting.sacct import NOT_OVER, SlurmFacts, read_slurm
from memory.explain import explain
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.verdict.text import as_text
from memory.files.file_kinds import HEAD_BYTES, not_expected
from memory.record.earlier_attempts import LOGS
from memory.record.evidence import LOG_END_BYTES, Evidence

_FILES = ("outcome.json", "status.json", "run.json", "memory.jsonl", "memory.ring")
"""Files of a run folder."""
_EXAMPLES = """\
examples:
  python -m memory explain runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m memory explain 1a2b3c4d --json           the beginning of its identity
  python -m memory explain --log slurm-4242.out      a foreign job: its log alone
  python -m memory explain --job 4242 --log slurm-4242.out
  dmesg | python -m memory explain --log -

It reads what exists: status.json, outcome.json, memory.ring, memory.jsonl, the log; sacct if it is installed.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `python -m memory`."""
    parser = subparsers.add_parser(
        "explain",
        help="why a run died, or how close it was; what to change",
        description="Why a run died, or how close it was: the verdict, its evidence, what to type.",
        epilog=_EXAMPLES,
    )
    run_help = "a run's folder, its name, a beginning of its identity; or a log"
    log_help = "another log of it, or a log alone; - reads it from standard input"
    parser.add_argument("given", metavar="RUN", nargs="?", help=run_help)
    parser.add_argument("--log", metavar="FILE", help=log_help)
    parser.add_argument(
        "--job", metavar="ID", help="ask Slurm about this job, or a step of it: 4242, 4242_7, 4242.0"
    )
    parser.add_argument("--no-sacct", action="store_true", help="do not ask Slurm about a run's own job")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the explanation; the exit status says nothing of the run's own end."""
    evidence = _evidence(options)
    slurm = _slurm(options, evidence)
    found = explain(evidence, slurm=slurm)
    if options.json:
        print(json.dumps({"run": str(evidence.path) if options.given else None, **found.to_json()}, indent=2))
        return 0
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    columns = min(120, shutil.get_terminal_size((100, 24)).columns)
    print(as_text(found, columns=columns, colour=colour))
    print(f"\nnext: {_next(evidence, slurm)}")
    return 0


def _evidence(options: argparse.Namespace) -> Evidence:
    given, log = options.given, options.log
    if given is None and log is None and options.job is None:
        raise UserError(
            "explain: nothing to explain: expected RUN, --log FILE or --job ID; "
            "for example python -m memory explain runs/default/NAME",
            code="nothing-to-explain",
        )
    if given and _is_bare_log(path_of(given)):
        given, log = None, log or given
    folder = find_run(given) if given is not None else Path(os.devnull)
    if log is not None:
        content, name = _read_log(log)
        return Evidence(folder, added_log=content, added_log_name=name)
    has_files = any((folder / name).exists() for name in (*_FILES, *LOGS, "config.yaml"))
    if given is not None and options.job is None and not has_files and not any(folder.glob("memory.*")):
        raise UserError(
            f"{given}: no run in this folder: expected outcome.json, status.json, memory.jsonl or a log; "
            "a log elsewhere: --log FILE",
            code="not-a-run",
        )
    return Evidence(folder)


def _is_bare_log(path: Path) -> bool:
    """A file that is of no run; a pipe too, as of `<(zcat slurm-4242.out.gz)`."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # it does not exist, or cannot be read
        return False
    is_log = stat.S_ISREG(mode) or stat.S_ISFIFO(mode)
    return is_log and not any((path.parent / name).exists() for name in _FILES)


def _read_log(given: str) -> tuple[str, str]:
    """The end of a log, and its name."""
    if given == "-" and sys.stdin is None:
        raise UserError(
            "--log -: standard input is closed. Expected a log there, or --log FILE", code="stdin-closed"
        )
    try:
        if given == "-":
            return _end_of(sys.stdin.buffer), "standard input"
        path = path_of(given)
        with open(path, "rb") as file:
            other = (
                not_expected(path, "the log of a job", head=file.read(HEAD_BYTES))
                if file.seekable()
                else None
            )
            if other is not None:
                raise UserError(f"--log {given}: {other}", code="not-a-log")
            return _end_of(file), path.name
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no file can have that name"
        raise UserError(
            f"--log {given}: cannot be read: {why}. Expected the file that the job wrote to",
            code="log-not-readable",
        ) from None


def _end_of(file: BinaryIO) -> str:
    """Read a log, also from a pipe (`--log <(zcat slurm-4242.out.gz)`), and keep the end that is searched."""
    if file.seekable():
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END_BYTES))
    end = b""
    while part := file.read(LOG_END_BYTES):
        end = (end + part)[-LOG_END_BYTES:]
    return end.decode(errors="replace")


def _slurm(options: argparse.Namespace, evidence: Evidence) -> SlurmFacts | None:
    """Ask accounting of the named job, else of the run's own job if sacct is installed."""
    if options.job is None:
        job = "" if options.no_sacct or not shutil.which("sacct") else RunFacts(evidence).job_id
        return read_slurm(job) if job else None
    found = read_slurm(options.job)
    steps = [row.step or "" for row in found.job.steps] if found.job else []
    if not found.jobs and options.given is None and options.log is None:
        notes = "; ".join(found.notes)
        raise UserError(f"--job {options.job}: Slurm has no rows of it: {notes}", code="unknown-job")
    if found.step and steps and found.step not in steps:
        expected = ", ".join(steps)
        raise UserError(f"--job {options.job}: no such step: expected one of {expected}", code="unknown-step")
    return found


def _next(evidence: Evidence, slurm: SlurmFacts | None) -> str:
    job = slurm.job if slurm is not None else None
    if evidence.path != Path(os.devnull):
        return f"python -m memory report {shlex.quote(str(evidence.path))}"
    if job is None or job.badness != NOT_OVER:
        return "python -m memory run --output DIR -- COMMAND   (samples the next run)"
    waits = f"squeue --start --job {job.row.job}   (when it can begin)"
    return waits if job.row.state == "PENDING" else f"python -m memory watch --job {job.row.job}"
