"""Write a set in another format: next to it, atomically, and only if the export is not up to date."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from data_loading.export_formats.contents import Contents, Split, val_border
from data_loading.export_formats.export_files import ExportWriter
from data_loading.export_formats.exporter import Format
from data_loading.export_formats.record import RECORD, Record, read_record, record_of
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.disk_errors import disk_errors
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.token_set import TokenSet, open_token_set
from data_loading.verification_cache import CHECKED
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import Problem, UserError
from memory import format_bytes, stage

Log = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    path: Path
    format: str
    made: bool
    """False if it was up to date."""
    tokens: dict[str, int]
    """By split, as the set has them."""
    files: list[str]
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def summary(self) -> str:
        """Return one line for a user."""
        parts = [f"{n:,} tokens{'' if name == 'all' else f' in {name}'}" for name, n in self.tokens.items()]
        files = "1 file" if len(self.files) == 1 else f"{len(self.files):,} files"
        done = "" if self.made else ", up to date: nothing to do"
        size = format_bytes(self.bytes)
        return f"{self.path}/: {' and '.join(parts)} for {self.format}, {files} of {size}{done}"


def check_exports(
    formats: Sequence[Format], sets: Sequence[Path], tokenizer: Tokenizer, *, append: bool = False
) -> None:
    """Check, before anything is made, that these sets can be exported and their folders are free.

    Args:
        formats: Formats to write.
        sets: Paths of the sets.
        tokenizer: Of the sets.
        append: Whether more will be appended to them.

    Raises:
        UserError: All problems together.
    """
    problems: list[Problem] = []
    for format_ in formats:
        if append and format_.has_val and len(sets) == 1 and "val" in (read_manifest(sets[0]) or {}):
            what = (
                f"--format {format_.name} has room for one held-out part, and with --append {sets[0]} "
                "holds out one for each text that was appended. Leave it out, or tokenize all texts together"
            )
            problems.append(Problem("", what, "export-several-val-ranges"))
        problem = format_.problem(tokenizer)
        if problem is not None:
            what = f"{problem}. Leave it out, or choose another tokenizer"
            problems.append(Problem(f"--format {format_.name}", what, "export-tokenizer-too-large"))
        for folder, paths in _places(format_, sets):
            problems += _not_ours(folder, [path.name for path in paths])
    if problems:
        raise UserError(*problems)


def export(
    formats: Sequence[Format],
    sets: Sequence[Path],
    tokenizer: Tokenizer,
    log: Log = lambda line: None,
    *,
    elsewhere: bool = True,
) -> list[Exported]:
    """Write finished sets in each format, in constant memory.

    X.npy is written to X.FORMAT/. X_train.npy and X_validation.npy are written together to X.FORMAT/ if the
    format keeps train and val apart.

    Args:
        formats: Formats to write.
        sets: One set, or one to train on and one that is held out.
        tokenizer: Of the sets.
        log: Takes notes for a user.
        elsewhere: Whether the command can write to another disk.

    Raises:
        UserError: The format cannot hold it, the folder is taken, or the disk is full or read-only.
        LockHeld: Another process writes this export.
    """
    check_exports(formats, sets, tokenizer)
    done = []
    for format_ in formats:
        for folder, paths in _places(format_, sets):
            contents = contents_of(format_, [open_token_set(path) for path in paths], folder)
            contents = replace(contents, val_apart=len(paths) < len(sets))
            for note in format_.notes(contents):
                log(note)
            with (
                disk_errors(folder, sets[0], elsewhere=elsewhere),
                lock_file.lock(folder.with_name(f".{folder.name}.lock"), f"export {folder}"),
            ):
                done.append(_export(format_, contents, tokenizer, folder))
    return done


def contents_of(format_: Format, sets: Sequence[TokenSet], folder: Path) -> Contents:
    """Return the contents of an export: all of a set, one divided as by a run, or two as train and val."""
    first = sets[0]
    if not format_.has_val:
        splits = {"all": Split(first, 0, first.n_tokens)}
    elif len(sets) == 2:
        splits = {name: Split(s, 0, s.n_tokens) for name, s in zip(("train", "val"), sets, strict=True)}
    else:
        border = val_border(first)
        splits = {"train": Split(first, 0, border), "val": Split(first, border, first.n_tokens)}
    if first.manifest is None:
        raise UserError(
            f"{first.path} has no manifest, so its tokenizer is not known: tokenize its text again",
            code="tokenizer-unknown",
        )
    return Contents(folder.name.removesuffix(f".{format_.name}"), splits, first.manifest["tokenizer"])


def _places(format_: Format, sets: Sequence[Path]) -> Iterator[tuple[Path, Sequence[Path]]]:
    """Yield (folder of an export, the sets in it)."""
    for paths in [sets] if format_.has_val else [[path] for path in sets]:
        stem = paths[0].name.removesuffix(".npy")
        if len(paths) == 2:
            stem = stem.removesuffix("_train")
        yield paths[0].with_name(f"{stem}.{format_.name}"), paths


def _not_ours(folder: Path, sets: list[str]) -> list[Problem]:
    """Return why the folder cannot be replaced; empty if it can, or does not exist."""
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return []
    except OSError as error:
        return [Problem("", f"{folder} cannot be read: {error.strerror}", "file-unreadable")]
    away = f"Move it, or remove it: {shlex.join(['rm', '-r', str(folder)])}"
    try:
        record = read_record(folder)
    except UserError as error:
        return [Problem("", f"{error}. {away}", error.code)]
    if record is None:
        what = f"{folder} exists and was not written by this program (it has no {RECORD}). {away}"
        return [Problem("", what, "export-folder-taken")]
    made_from = [item["name"] for item in record.sets]
    if [Path(name).name for name in made_from] != sets:
        what = f"{folder} was made from {' and '.join(made_from)}, not from {' and '.join(sets)}. {away}"
        return [Problem("", what, "export-of-other-sets")]
    return []


def _export(format_: Format, contents: Contents, tokenizer: Tokenizer, folder: Path) -> Exported:
    partial, old = (folder.with_name(f".{folder.name}.{end}") for end in ("partial", "old"))
    for leftover in (partial, old):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    wanted, found = record_of(format_, contents, folder, {}), read_record(folder)
    is_up_to_date = found is not None and found.is_of(wanted) and _has_its_files(folder, found)
    if not is_up_to_date:
        if found is not None:
            _refuse_other_files(folder, found)
        try:
            with stage("export", format=format_.name):
                found = _write(format_, contents, tokenizer, partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        atomic_files.replace_folder(partial, folder, old, folder.name)
    assert found is not None
    return Exported(
        path=folder,
        format=format_.name,
        made=not is_up_to_date,
        tokens={name: len(split) for name, split in contents.splits.items()},
        files=list(found.files),
        bytes=sum(fact["bytes"] for fact in found.files.values()),
    )


def _has_its_files(folder: Path, record: Record) -> bool:
    """Whether all files exist in their sizes; `verify` reads them."""
    paths = {folder / name: fact["bytes"] for name, fact in record.files.items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def _refuse_other_files(folder: Path, record: Record) -> None:
    """Refuse to replace an outdated export that holds files of another program."""
    own = {RECORD, CHECKED, *record.files}
    others = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and str(path.relative_to(folder)) not in own
    )
    if others:
        remove = shlex.join(["rm", "-r", str(folder)])
        raise UserError(
            f"{folder} is out of date and would be replaced, but holds files that are not of it "
            f"({len(others)}, such as {others[0]}). Move them away, or remove all: {remove}",
            code="export-folder-has-other-files",
        )


def _write(format_: Format, contents: Contents, tokenizer: Tokenizer, partial: Path, folder: Path) -> Record:
    """Write the files and sync them to the device; the record last."""
    partial.mkdir()
    writer = ExportWriter(partial)
    format_.write(contents, tokenizer, writer)
    atomic_files.point(f"{partial.name}:written")
    record = record_of(format_, contents, folder, writer.files)
    atomic_files.write_json(partial / RECORD, record.to_json())
    for path in [*partial.rglob("*"), partial]:
        if path.is_dir():
            atomic_files.fsync_folder(path)
    return record
