"""`highwater stale STUDY`: the runs that a change of the code has outdated."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.exit_status import DONE
from experiment_utils.quantities import counted

if TYPE_CHECKING:
    from experiment_utils.run_folder import RunFolder
    from training.attempt.code_version import Change

EXAMPLES = """\
examples:
  highwater stale lr_sweep
  highwater stale lr_sweep --json | jq -r '.outdated[].run'

Compares the code of the newest attempt of each run with the code of this checkout. Only modules that decide
numbers count; comments and docstrings do not.
exit status: 0 whether or not a run is outdated (--json: `outdated`), 2 the input cannot be used"""
_SHOWN = 20


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "stale",
        help="the runs that a change of the code has outdated",
        description="The runs of a study that were made by other code than that of this checkout, the files "
        "that changed since, and the commands that make the runs again.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "study", metavar="STUDY", help="folder of a study or of several, or name below runs_dir"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Outdated:
    """Runs that one other version of the code made."""

    name: str
    """Name of the version, as in tables."""
    hash: str
    changes: Sequence[Change]
    """From that version to the code of the checkout; empty if the run folder lacks hashes of the files."""
    runs: Sequence[RunFolder]


def run(options: argparse.Namespace) -> int:
    """Print the answer.

    Raises:
        UserError: there is no such study, or no run in it.
    """
    from analysis.reading.study import run_folders_of
    from experiment_utils.run_folder import RunFolder
    from training.attempt.code_version import ROOT, code_version

    folders = run_folders_of(options.study)
    if not folders:
        raise UserError(
            f"{options.study}: no runs there: expected a study (folders with a config.yaml in them)"
        )
    unreadable = {folder.name: why for folder in folders if (why := _why_unreadable(folder)) is not None}
    runs = [RunFolder(folder) for folder in folders if folder.name not in unreadable]
    begun = [run for run in runs if run.attempts]
    unknown = [run for run in begun if not _hash_of(run)]
    now = code_version(ROOT).hash
    outdated = _outdated([run for run in begun if _hash_of(run) not in ("", now)], begun)
    current = [run for run in begun if _hash_of(run) == now]
    if options.json:
        found = _json(options.study, now, outdated, current, unknown, unreadable)
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        not_begun = len(runs) - len(begun)
        print("\n".join(_page(options.study, outdated, current, unknown, not_begun, unreadable)))
    return DONE


def _why_unreadable(folder: Path) -> str | None:
    """Why it is not known which code made a run; None where its run.json can be read or is not there yet."""
    try:
        atomic_files.read_object(folder / "run.json")
    except atomic_files.Unreadable as error:
        return f"{error.path} cannot be read: {error.why}"
    except ValueError as error:
        return f"{folder / 'run.json'} is damaged: {str(error).splitlines()[0]}"
    return None


def _newest(run: RunFolder) -> Mapping[str, Any]:
    newest = run.run["attempts"][-1]
    return newest if isinstance(newest, dict) else {}


def _hash_of(run: RunFolder) -> str:
    """Hash of the code of the newest attempt; empty if it was not recorded."""
    from training.attempt.made_by import codes_of

    code = codes_of(run.run)[-1]
    return code.hash if code is not None else ""


def _outdated(runs: Sequence[RunFolder], every: Sequence[RunFolder]) -> list[Outdated]:
    """By version, in the order of the runs. every: of the study, by which versions have their names."""
    from training.attempt.code_record import changes_since, code_of_attempt
    from training.attempt.made_by import Versions, codes_of

    versions = Versions((run.name, codes_of(run.run)) for run in every)
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(_hash_of(run), []).append(run)
    found = []
    for version, members in groups.items():
        recorded = [(run, code_of_attempt(run.path, _newest(run))) for run in members]
        run, before = next(
            ((run, code) for run, code in recorded if code and code.version.files), recorded[0]
        )
        changes = changes_since(run.path, before) if before is not None else []
        name = versions.name_of(codes_of(members[0].run)[-1:]) or version
        found.append(Outdated(name, version, changes, members))
    return found


def _json(
    study: str,
    now: str,
    outdated: Sequence[Outdated],
    current: Sequence[RunFolder],
    unknown: Sequence[RunFolder],
    unreadable: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "version": 1, "study": study, "code": now,
        "outdated": [
            {
                "run": run.name, "folder": str(run.path), "code": one.name, "hash": one.hash,
                "changes": [asdict(change) for change in one.changes], "command": _again(run),
            }
            for one in outdated
            for run in one.runs
        ],
        "current": [run.name for run in current],
        "unknown": [run.name for run in unknown],
        "unreadable": dict(unreadable),
        "commands": _all_again(outdated),
    }  # fmt: skip


def _page(
    study: str,
    outdated: Sequence[Outdated],
    current: Sequence[RunFolder],
    unknown: Sequence[RunFolder],
    not_begun: int,
    unreadable: Mapping[str, str],
) -> list[str]:
    from training.attempt.begin import describe_changes

    old = [run for one in outdated for run in one.runs]
    counts = {
        "outdated": len(old), "current": len(current), "unknown": len(unknown), "not begun": not_begun,
        "unreadable": len(unreadable),
    }  # fmt: skip
    summary = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    lines = [f"{study}: {counted(sum(counts.values()), 'run')}: {summary}"]
    if unknown:
        lines.append("unknown: their attempts recorded no code")
    lines += [f"unreadable: {name}: {why}" for name, why in unreadable.items()]
    if not old:
        return [*lines, "nothing to do: no run is known to be made by other code than that of this checkout"]
    for one in outdated:
        lines += ["", f"made by {one.name}; changed since: {describe_changes(one.changes)}"]
        lines += [f"  {run.name}" for run in one.runs[:_SHOWN]]
        lines += [f"  and {len(one.runs) - _SHOWN} more"] if len(one.runs) > _SHOWN else []
    lines += ["", "make one of them again, from step 0:", f"  {_again(old[0])}"]
    return [
        *lines,
        "make all of them again, in the background:",
        *(f"  {one}" for one in _all_again(outdated)),
    ]


def _again(run: RunFolder) -> str:
    """The command that makes one run again with the code of this checkout.

    A run that began from a checkpoint or in an ensemble cannot be asked for key by key: it is submitted.
    """
    from analysis.next_steps import command_of

    if run.setting("restore.from") is None and not run.fact("ensemble"):
        try:
            return f"{command_of(run)} again=true"
        except UserError:  # a configuration of another version
            pass
    return _resubmit(run.path.parent, [run])


def _all_again(outdated: Sequence[Outdated]) -> list[str]:
    """The commands that make all outdated runs again, one a study."""
    studies: dict[Path, list[RunFolder]] = {}
    for one in outdated:
        for run in one.runs:
            studies.setdefault(run.path.parent, []).append(run)
    return [_resubmit(study, runs) for study, runs in studies.items()]


def _resubmit(study: Path, runs: Sequence[RunFolder]) -> str:
    from slurm.records.submissions import typed_study

    names = " ".join(shlex.quote(run.name) for run in runs)
    return f"python -m slurm resubmit {typed_study(study)} {names} --again --code now"
