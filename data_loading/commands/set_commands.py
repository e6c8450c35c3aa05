"""`pretokenize_dataset.py verify SET`, `inspect SET`, `merge SET`: what a user may ask of a token set."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.commands import task_commands
from data_loading.tokens.set_files import MANIFEST, SetFiles
from experiment_utils.display import table
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.audit.inspection import Inspection

COMMANDS = ("verify", "inspect", "merge")

EXAMPLES = {
    "verify": """\
examples:
  python pretokenize_dataset.py verify Datasets/c4.npy          # every checksum, id and document start
  python pretokenize_dataset.py verify Datasets/c4 --deep       # also encodes a sample again
  python pretokenize_dataset.py verify Datasets/c4.megatron     # an export, by its record and its set

The exports of a set that lie beside it are verified with it.

Exit status: 0 all is well, 1 something is not, 2 there is no set that could be verified.
""",
    "inspect": """\
examples:
  python pretokenize_dataset.py inspect Datasets/c4.npy
  python pretokenize_dataset.py inspect Datasets/c4 --json
""",
}


def main(arguments: list[str]) -> int:
    """Run `verify ...`, `inspect ...` or `merge ...`; returns the exit status. Raises UserError."""
    if arguments[0] == "merge":
        return task_commands.main(arguments)
    options = _parser(arguments[0]).parse_args(arguments[1:])
    if arguments[0] == "verify":
        return _verify(options.set, deep=options.deep, as_json=options.json)
    from data_loading.audit.inspection import inspect

    found = inspect(_tokens_of(options.set))
    print(json.dumps(found.to_json(), indent=2, ensure_ascii=False) if options.json else _page(found))
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    describe = {
        "verify": "Hold every byte of a token set, and of its exports, against its manifest.",
        "inspect": "Say what is in a token set.",
    }
    result = argparse.ArgumentParser(
        prog=f"pretokenize_dataset.py {command}",
        description=describe[command],
        epilog=EXAMPLES[command],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export = "; or the folder of an export" if command == "verify" else ""
    result.add_argument("set", metavar="SET", help=f"FILE.npy, or what it is called without .npy{export}")
    if command == "verify":
        result.add_argument(
            "--deep",
            action="store_true",
            help="also encode samples of the text again, with the reference tokenizer",
        )
    result.add_argument("--json", action="store_true", help="print the answer as JSON")
    return result


def _tokens_of(given: str) -> Path:
    path = Path(given).expanduser()
    if path.name.endswith(".txt"):
        path = path.with_suffix("")
    if SetFiles(path).is_folder and SetFiles(path).exists:
        return path
    found = path if path.name.endswith(".npy") else path.with_name(f"{path.name}.npy")
    if not SetFiles(found).exists:
        halves = [path.with_name(f"{path.name}{end}") for end in ("_train", "_validation", "_val")]
        there = [
            half for half in halves if SetFiles(half).exists or half.with_name(f"{half.name}.npy").exists()
        ]
        if there:
            names = " and ".join(map(str, there))
            raise UserError(f"{given}: there are {names}: give one of them", code="path-ambiguous")
        raise UserError(
            f"{given}: no token set there (looked for {found} and {path}/{MANIFEST})", code="no-token-set"
        )
    return found


def _verify(given: str, *, deep: bool, as_json: bool) -> int:
    from data_loading.audit.audit import audit
    from data_loading.export_formats.check_export import audit_export, export_folder_of

    path = export_folder_of(Path(given).expanduser())
    if path is not None:
        findings, told_by = audit_export(path), "record"
    else:
        path, told_by = _tokens_of(given), "manifest"
        findings = audit(path, deep=deep)
    bad = [finding for finding in findings if finding.ok is False]
    if as_json:
        print(json.dumps([finding.to_json() for finding in findings], indent=2, ensure_ascii=False))
    else:
        words = {True: "ok", False: "BAD", None: "-"}
        rows = [(words[finding.ok], finding.what, finding.told) for finding in findings]
        print("\n".join(table((), rows)))
        print(f"{path}: " + (f"all is as its {told_by} says" if not bad else f"not what its {told_by} says"))
    if bad:
        mend = f". {bad[0].mend}" if bad[0].mend else ""
        print(f"error: {path}: {bad[0].what}: {bad[0].told}{mend}", file=sys.stderr)
    return 1 if bad else 0


def _page(found: Inspection) -> str:
    from memory import format_bytes

    rows: list[tuple[str, str]] = [
        ("tokens", f"{found.tokens:,} in {format_bytes(found.file_bytes)} ({found.dtype})"),
        ("tokenizer", f"{found.tokenizer}, {found.vocab_size:,} ids"),
        (
            "used",
            f"{found.used_ids:,} ids ({found.used_ids / found.vocab_size:.1%}), "
            f"{found.entropy_bits:.2f} bits a token",
        ),
    ]
    if found.bytes_per_token is not None and found.text_bytes is not None:
        rows.append(("text", f"{format_bytes(found.text_bytes)}, {found.bytes_per_token:.2f} bytes a token"))
    if found.documents is not None:
        rows.append(("documents", f"{found.documents:,}"))
    if found.lengths is not None and found.documents != 1:
        rows.append(("length", _lengths(found.lengths)))
    rows += [("made from", f"{source['path']}, {format_bytes(source['bytes'])}") for source in found.sources]
    lines = [str(found.path), *(f"  {label:<10}{told}" for label, told in rows), "  most frequent"]
    for number, text, share in found.most_frequent:
        lines.append(f"    {share:6.2%}  {number:>6}" + ("" if text is None else f"  {text!r}"))
    if found.first_text is not None:
        lines += ["  begins with", *(f"    {line}" for line in found.first_text.split("\n"))]
    return "\n".join(lines)


def _lengths(lengths: Any) -> str:
    words = (
        f"{lengths.mean:,.1f} tokens in the mean, from {lengths.smallest:,} to {lengths.largest:,}; 90% from "
        f"{lengths.p5:,} to {lengths.p95:,}, half up to {lengths.median:,}"
    )
    return words + (" (of a sample)" if lengths.estimated else "")
