"""`python -m slurm clean STUDY`: find the files of a study that are not needed, and remove them."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict

from experiment_utils.errors import UserError
from experiment_utils.exit_status import agreed
from experiment_utils.quantities import counted
from memory import format_bytes
from slurm.arguments import study_and_names
from slurm.commands.removable_files import KEEP, Disk, look, remove
from slurm.commands.status_table import Next

EXAMPLES = """\
examples:
  python -m slurm clean lr_sweep                  disk usage, and what can be removed; asks
  python -m slurm clean lr_sweep --keep best      runs that are done keep their best checkpoint
  python -m slurm clean lr_sweep --keep none --yes
  python -m slurm clean lr_sweep --json           removes nothing

Runs that run, wait or are blocked keep all files. Others keep what they need to resume: the newest and best
checkpoint, the code, the output of their jobs. Results, logs and metrics always stay."""
_MOST = 12


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "clean",
        help="disk usage by kind; removes old checkpoints and snapshots, after a question",
        description="Disk usage of a study; removes what is not needed any more, after a question.",
        epilog=EXAMPLES,
    )
    parser.add_argument("study", metavar="STUDY", help="path, or name below runs_dir")
    parser.add_argument(
        "--keep", choices=KEEP, default="best", help="checkpoint of runs that are done (best)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="one JSON object; removes nothing without --yes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List what is not needed, ask, remove it.

    Raises:
        UserError: the study does not exist or has no runs.
    """
    study, one = study_and_names(options.study)
    if one:
        raise UserError(f"{options.study}: that is one run: expected its study, {study}")
    disk = look(study, options.keep)
    if not options.json:
        print(*_lines(disk), sep="\n")
    may_ask = bool(disk.items) and not options.json and sys.stdin.isatty()
    is_agreed = options.yes or (may_ask and agreed(f"Remove {format_bytes(disk.freed_bytes)}? [y/N] "))
    freed, refused = remove(disk.items) if is_agreed else (0, [])
    if options.json:
        items = [
            asdict(item) | {"path": str(item.path), "run": item.run and str(item.run)} for item in disk.items
        ]
        plain = {
            "version": 1, "study": str(disk.study), "held_bytes": disk.held_bytes, "items": items,
            "free_bytes": disk.freed_bytes, "freed_bytes": freed, "refused": refused,
        }  # fmt: skip
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return 1 if refused else 0
    print(*refused, sep="\n", end="\n" if refused else "", file=sys.stderr)
    typed = shlex.quote(options.study)
    step = Next(f"python -m slurm status {typed}", "its runs")
    if freed:
        print(f"{format_bytes(freed)} freed")
    elif disk.items:
        print("nothing was removed")
        keep = "" if options.keep == "best" else f" --keep {options.keep}"
        step = Next(f"python -m slurm clean {typed}{keep} --yes", "removes it")
    print(step.line())
    return 1 if refused else 0


def _lines(disk: Disk) -> list[str]:
    lines = [f"{disk.study} holds {format_bytes(sum(disk.held_bytes.values()))}"]
    for kind, held in disk.held_bytes.items():
        free = sum(item.bytes for item in disk.items if item.kind == kind)
        if held or free:
            not_needed = f", {format_bytes(free)} not needed" if free else ""
            lines.append(f"  {kind:<12} {format_bytes(max(held, free)):>8}{not_needed}")
    if disk.kept_runs:
        lines.append(f"{counted(disk.kept_runs, 'run')} that run, wait or cannot be read are left alone")
    largest = sorted(disk.items, key=lambda item: -item.bytes)
    lines += ["", "not needed:"] if largest else ["nothing can be removed"]
    lines += [f"  {format_bytes(item.bytes):>8}  {item.path}" for item in largest[:_MOST]]
    if len(largest) > _MOST:
        rest = sum(item.bytes for item in largest[_MOST:])
        lines.append(f"  {format_bytes(rest):>8}  in {len(largest) - _MOST} more: --json lists them")
    return [*lines, ""] if largest else lines
