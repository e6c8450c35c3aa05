"""`pretokenize_dataset.py verify SET`, `inspect SET` and `merge SET`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from data_loading.commands import task_commands
from data_loading.tokens.set_files import MANIFEST, SetFiles
from experiment_utils.display import table
from experiment_utils.errors import UserError
from experiment_utils.room_command import Parser

COMMANDS = ("verify", "inspect", "merge")

EXAMPLES = {
    "verify": """\
examples:
  python pretokenize_dataset.py verify Datasets/c4.npy          # every checksum, id and document start
  python pretokenize_dataset.py verify Datasets/c4 --deep       # also encodes documents again
  python pretokenize_dataset.py verify Datasets/c4.megatron     # an export, by its record and its set

The exports in the folder of a set are verified with it.

Exit status: 0 everything matches, 1 something differs, 2 there is no set that can be verified.
""",
    "inspect": """\
examples:
  python pretokenize_dataset.py inspect Datasets/c4.npy
  python pretokenize_dataset.py inspect Datasets/c4 --json
""",
}
_DESCRIPTIONS = {
    "verify": "Compare every byte of a token set, and of its exports, with its manifest.",
    "inspect": "Show what is in a token set.",
}


def main(arguments: list[str]) -> int:
    """Run `verify ...`, `inspect ...` or `merge ...`; returns the exit status. Raises UserError."""
    if arguments[0] == "merge":
        return task_commands.main(arguments)
    options = _parser(arguments[0]).parse_args(arguments[1:])
    if arguments[0] == "verify":
        return _verify(options.set, deep=options.deep, as_json=options.json)
    from data_loading.audit.inspection import inspect

    found = inspect(_set_at(options.set))
    print(json.dumps(found.to_json(), indent=2, ensure_ascii=False) if options.json else found.to_text())
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    result = Parser(
        prog=f"pretokenize_dataset.py {command}",
        description=_DESCRIPTIONS[command],
        epilog=EXAMPLES[command],
    )
    export = "; or the folder of an export" if command == "verify" else ""
    result.add_argument("set", metavar="SET", help=f"FILE.npy, its name without .npy, or a folder{export}")
    if command == "verify":
        result.add_argument(
            "--deep",
            action="store_true",
            help="also encode documents and samples again, with the reference tokenizer",
        )
    result.add_argument("--json", action="store_true", help="print the result as JSON")
    return result


def _set_at(given: str) -> Path:
    """Return the set that a user names, also by its text or without .npy. Raises UserError."""
    path = Path(given).expanduser()
    if path.name.endswith(".txt"):
        path = path.with_suffix("")
    if SetFiles(path).is_folder and SetFiles(path).exists:
        return path
    found = path if path.name.endswith(".npy") else path.with_name(f"{path.name}.npy")
    if SetFiles(found).exists:
        return found
    halves = [path.with_name(f"{path.name}{end}") for end in ("_train", "_validation", "_val")]
    names = [
        str(half) for half in halves if SetFiles(half).exists or half.with_name(f"{half.name}.npy").exists()
    ]
    if names:
        raise UserError(f"{given}: there are {' and '.join(names)}: give one of them", code="path-ambiguous")
    raise UserError(
        f"{given}: no token set there (looked for {found} and {path}/{MANIFEST})", code="no-token-set"
    )


def _verify(given: str, *, deep: bool, as_json: bool) -> int:
    from data_loading.audit.check_exports import check_export, export_folder_of
    from data_loading.audit.check_set import check_set

    path, reference = export_folder_of(Path(given).expanduser()), "record"
    if path is not None:
        findings = check_export(path)
    else:
        path, reference = _set_at(given), "manifest"
        findings = check_set(path, deep=deep)
    bad = [finding for finding in findings if finding.ok is False]
    if as_json:
        print(json.dumps([finding.to_json() for finding in findings], indent=2, ensure_ascii=False))
    else:
        status = {True: "ok", False: "BAD", None: "-"}
        print("\n".join(table((), [(status[one.ok], one.what, one.message) for one in findings])))
        print(f"{path}: {'differs from' if bad else 'matches'} its {reference}")
    if bad:
        fix = f". {bad[0].fix}" if bad[0].fix else ""
        print(f"error: {path}: {bad[0].what}: {bad[0].message}{fix}", file=sys.stderr)
    return 1 if bad else 0
