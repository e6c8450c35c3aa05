"""Refusal of text that would be in a set twice, or in the text to train on and in the one held out."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.byte_files import content_hash_of
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles, other_halves
from experiment_utils.errors import UserError


def refuse_same_files(train: Inputs, val: Inputs) -> None:
    """Compare the files of --val with the others before anything is made; most differ in size.

    Raises:
        UserError: one of them is in both, under any name.
    """
    for held_out in _files(val):
        for file in _files(train):
            if file.stat().st_size == held_out.stat().st_size and filecmp.cmp(file, held_out, shallow=False):
                raise _held_out_too(str(file), str(held_out))


def refuse_same_contents(train: dict[str, Any], val: dict[str, Any]) -> None:
    """Compare the manifests of the two sets, which finds a text that only one of them has compressed.

    Raises:
        UserError: a text is in both.
    """
    contents = {source["content_hash"]: source["path"] for source in train["sources"]}
    for source in val["sources"]:
        if source["content_hash"] in contents:
            raise _held_out_too(contents[source["content_hash"]], source["path"])


def refuse_repeated_files(base: dict[str, Any], files: SetFiles, inputs: Inputs) -> None:
    """Compare the files to append with those of the set and of its other half, before the work.

    Only files of the same size are read, once. `refuse_repeated_contents` finds a text that only one of
    them has compressed.

    Args:
        base: Manifest of the set as it is.

    Raises:
        UserError: one of them is there, under any name, or was there and has changed since.
    """
    known = list(_known_sources(base, files))
    for path in _files(inputs):
        stat, hashes = path.stat(), dict[int | None, str]()
        for there, source in known:
            is_it = path.resolve() == (there.tokens.parent / source["path"]).resolve()
            if stat.st_size not in (source["bytes"], source.get("text_bytes")):
                if is_it:
                    raise _changed(path, f"{source['bytes']:,} bytes, and has {stat.st_size:,} now", there)
                continue
            if is_it and stat.st_mtime_ns == source.get("mtime_ns"):
                raise _repeated(str(path), source, there, files)
            length = source.get("read_bytes")
            if length not in hashes:
                hashes[length] = content_hash_of(path, length)
            if hashes[length] == source["content_hash"]:
                raise _repeated(str(path), source, there, files)
            if is_it:
                raise _changed(path, "another content", there)


def refuse_repeated_contents(
    base: dict[str, Any], files: SetFiles, appended: Sequence[dict[str, Any]]
) -> None:
    """Compare content hashes after the work, before the set takes its place.

    Args:
        appended: The manifest's `sources` of what is new.

    Raises:
        UserError: as `refuse_repeated_files`.
    """
    known = {source["content_hash"]: (there, source) for there, source in _known_sources(base, files)}
    for source in appended:
        if source["content_hash"] in known:
            there, before = known[source["content_hash"]]
            raise _repeated(source["path"], before, there, files)


def _files(inputs: Inputs) -> list[Path]:
    paths = [getattr(unwrapped(part), "path", None) for part in inputs.parts]
    return [path for path in paths if path is not None and path.is_file()]


def _known_sources(base: dict[str, Any], files: SetFiles) -> Iterator[tuple[SetFiles, dict[str, Any]]]:
    """Sources of the set and of its other half (X_validation of X_train), with the set of each."""
    for source in base["sources"]:
        yield files, source
    for half in other_halves(files):
        manifest = read_manifest(half.tokens)
        for source in manifest["sources"] if manifest else ():
            yield half, source


def _held_out_too(file: str, held_out: str) -> UserError:
    return UserError(
        f"--val {held_out} holds the same text as {file}, so a model would be tested on what it was trained "
        "on. Hold another text out, or omit --val: a run then holds out the last part of the text "
        "(dataset.val_fraction)",
        code="val-is-train",
    )


def _changed(path: Path, before: str, there: SetFiles) -> UserError:
    return UserError(
        f"--append: {path} is in {there.tokens} already, as it was before: it had {before}. The part in both "
        "would be in the set twice, and the set could not be compared with its text again. Append a file "
        "of another name with the new part only, or make the set again (--overwrite without --append)",
        code="append-input-changed",
    )


def _repeated(name: str, source: dict[str, Any], there: SetFiles, files: SetFiles) -> UserError:
    same = "" if Path(source["path"]).name == Path(name).name else f" (there from {source['path']})"
    why = "it would be in the set twice"
    if there.tokens != files.tokens:
        why = "a model would be tested on what it was trained on"
    return UserError(
        f"--append: the text of {name} is in {there.tokens} already{same}; {why}. Leave it out",
        code="append-input-repeated",
    )
