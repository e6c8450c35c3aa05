"""Exports whose set was changed since, and how to write them again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from data_loading.export_formats import FORMATS, load_format
from data_loading.export_formats.record import Record, read_record
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import TokenSet, open_token_set
from data_loading.tokens.truncated_documents import option_flags
from experiment_utils.errors import UserError

REMAKE = "Remove the export ({folder}) and type the command that made it again, with --format {format}"


def outdated_exports(tokens: Path) -> Iterator[tuple[Path, str]]:
    """Yield (folder, how to write it again) of each export of a set to which more was appended since."""
    for name in FORMATS:
        folder = tokens.with_name(f"{tokens.name}.{name}")
        try:
            record = read_record(folder)
            is_outdated = record is not None and changed_set(folder, record, sets_of(folder, record))
        except (UserError, FileNotFoundError):
            continue
        if record is not None and is_outdated:
            remake = REMAKE.format(folder=folder, format=record.format)
            yield folder, remake_after_append(folder, record) or remake


def sets_of(folder: Path, record: Record) -> dict[str, TokenSet]:
    """Open the sets from which an export was made, by their names in the record.

    Raises:
        FileNotFoundError: One is not here.
        UserError: One is damaged.
    """
    sets = {}
    for item in record.sets:
        path = folder.parent / item["name"]
        if not path.exists():
            raise FileNotFoundError(f"{item['name']} is not here")
        sets[item["name"]] = open_token_set(path)
    return sets


def changed_set(folder: Path, record: Record, sets: dict[str, TokenSet]) -> str | None:
    """Return which set is another one than when the export was made, None if all are the same."""
    for item in record.sets:
        found = sets[item["name"]]
        if (found.fingerprint, found.n_tokens) != (item["fingerprint"], item["tokens"]):
            return (
                f"{folder} was made from {item['name']} with fingerprint {item['fingerprint'][:12]} and "
                f"{item['tokens']:,} tokens, which has {found.fingerprint[:12]} and {found.n_tokens:,} now"
            )
    return None


def remake_after_append(folder: Path, record: Record) -> str | None:
    """Return how to write the export of a set that was appended to, None for any other set."""
    tokens = folder.parent / record.sets[0]["name"]
    try:
        manifest = read_manifest(tokens)
    except UserError:
        return None
    generations = manifest.get("generations", []) if manifest else []
    if manifest is None or len(generations) < 2:
        return None
    parts = len(manifest.get("val", {}).get("ranges", []))
    texts = [tokens.parent / source["path"] for source in manifest["sources"][-generations[-1]["sources"] :]]
    reason = None
    if parts > 1 and load_format(record.format).has_val:
        reason = f"which holds out {parts} parts now, and {record.format} has room for one"
    elif not all(text.is_file() for text in texts):
        reason = "and not all of that text is here"
    if reason is not None:
        remove = shlex.join(["rm", "-r", str(folder)])
        return (
            f"More was appended to {tokens}, {reason}: remove the export ({remove}), and tokenize all texts "
            "together for an export of all"
        )
    options = {name: value for name, value in manifest["options"].items() if not name.startswith("max_")}
    flags = ["--tokenizer", str(SetFiles(tokens).tokenizer), "--output", str(tokens), "--append"]
    flags += [*option_flags(options), "--format", record.format]
    command = shlex.join(["python", "pretokenize_dataset.py", *map(str, texts), *flags])
    return f"More was appended to {tokens}. This writes the export again: {command}"
