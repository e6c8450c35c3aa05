"""`python -m slurm clean STUDY`: what of its files is not needed any more; asked first, then taken away."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter

from experiment_utils.errors import UserError
from experiment_utils.exit_status import agreed
from experiment_utils.quantities import counted
from memory import format_bytes
from slurm.arguments import study_and_names
from slurm.commands.removable_files import KEEP, Disk, look, remove

EXAMPLES = """\
examples:
  python -m slurm clean lr_sweep                  what it holds and what may go; asks
  python -m slurm clean lr_sweep --keep best      of runs that are done the best checkpoint stays
  python -m slurm clean lr_sweep --keep none --yes
  python -m slurm clean lr_sweep --json           only tells

A run that runs, waits or is blocked is left alone, and so is what a run needs that may be submitted again:
its newest and best checkpoint, its code, what its job wrote. Results, logs and metrics always stay."""
_MOST = 12


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "clean",
        help="disk by kind; old checkpoints and snapshots away, asked first",
        description="What a study holds on disk, and what of it is not needed any more: asked first.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", metavar="STUDY", help="path, or name below runs_dir")
    parser.add_argument(
        "--keep", choices=KEEP, default="best", help="which checkpoint of a run that is done stays (best)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="one JSON object; touches nothing without --yes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tell, ask, and take away.

    Raises:
        UserError: there is no such study, or it has no runs.
    """
    study, one = study_and_names(options.study)
    if one:
        raise UserError(f"{options.study}: that is one run: expected its study, {study}")
    disk = look(study, options.keep)
    if not options.json:
        print("\n".join(_lines(disk)))
    if not disk.items or not (options.yes or (not options.json and _agreed(disk))):
        return _end(options, disk, 0, [])
    freed, refused = remove(disk.items)
    return _end(options, disk, freed, refused)


def _agreed(disk: Disk) -> bool:
    return sys.stdin.isatty() and agreed(f"Take away {format_bytes(disk.freed_bytes)}? [y/N] ")


def _end(options: argparse.Namespace, disk: Disk, freed: int, refused: list[str]) -> int:
    study = shlex.quote(options.study)
    if options.json:
        items = [
            {
                "path": str(item.path),
                "kind": item.kind,
                "bytes": item.bytes,
                "run": str(item.run) if item.run else None,
            }
            for item in disk.items
        ]
        plain = {
            "version": 1, "study": str(disk.study), "held_bytes": disk.held_bytes, "items": items,
            "free_bytes": disk.freed_bytes, "freed_bytes": freed, "refused": refused,
        }  # fmt: skip
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return 1 if refused else 0
    for line in refused:
        print(line, file=sys.stderr)
    if freed:
        print(f"{format_bytes(freed)} freed")
        print(f"next: python -m slurm status {study}   (what is left)")
    elif disk.items:
        keep = "" if options.keep == "best" else f" --keep {options.keep}"
        print(f"nothing was touched\nnext: python -m slurm clean {study}{keep} --yes   (takes it away)")
    else:
        print(f"next: python -m slurm status {study}   (its runs)")
    return 1 if refused else 0


def _lines(disk: Disk) -> list[str]:
    total = sum(disk.held_bytes.values())
    goes = Counter[str]()
    for item in disk.items:
        goes[item.kind] += item.bytes
    lines = [f"{disk.study} holds {format_bytes(total)}"]
    for kind, held in disk.held_bytes.items():
        if held or goes[kind]:
            told = f", {format_bytes(goes[kind])} not needed" if goes[kind] else ""
            lines.append(f"  {kind:<12} {format_bytes(max(held, goes[kind])):>8}{told}")
    if disk.kept_runs:
        lines.append(f"{counted(disk.kept_runs, 'run')} that run, wait or cannot be read are left alone")
    lines += [
        f"{path.parent.parent.name}: {path.name} stays: {run.parent.name}/{run.name} is to begin from it"
        for path, run in list(disk.kept_for.items())[:_MOST]
    ]
    if not disk.items:
        return [*lines, "nothing in it is unneeded"]
    lines += ["", "not needed:"]
    largest = sorted(disk.items, key=lambda item: -item.bytes)
    lines += [f"  {format_bytes(item.bytes):>8}  {item.path}" for item in largest[:_MOST]]
    if len(largest) > _MOST:
        rest = sum(item.bytes for item in largest[_MOST:])
        lines.append(f"  {format_bytes(rest):>8}  in {len(largest) - _MOST} more: --json lists them")
    return [*lines, ""]
