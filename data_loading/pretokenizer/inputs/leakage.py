"""What is appended must not be in the set already, nor in the one that holds out text beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.byte_files import content_hash_of
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles, other_halves
from experiment_utils.errors import UserError


def refuse_repeated_files(base: dict[str, Any], files: SetFiles, inputs: Inputs) -> None:
    """Before the work: compare the files that are appended with those that the set was made from.

    base: manifest of the set as it is. Only files of the same size are read, once. A text that is
    compressed in one of them only is found by `refuse_repeated_contents`.

    Raises:
        UserError: one of them is there, under whichever name, or was there and has changed since.
    """
    known = list(_known_sources(base, files))
    for part in inputs.parts:
        path = getattr(unwrapped(part), "path", None)
        if not isinstance(path, Path) or not path.is_file():
            continue
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
    """After the work, before it takes its place: by the content hashes of what was read.

    appended: the manifest's `sources` of what is new. Raises as `refuse_repeated_files`.
    """
    known = {source["content_hash"]: (there, source) for there, source in _known_sources(base, files)}
    for source in appended:
        if source["content_hash"] in known:
            there, before = known[source["content_hash"]]
            raise _repeated(source["path"], before, there, files)


def _known_sources(base: dict[str, Any], files: SetFiles) -> Iterator[tuple[SetFiles, dict[str, Any]]]:
    """Sources of the set, and of those that lie beside it as its other half, with the set of each."""
    for source in base["sources"]:
        yield files, source
    for beside in other_halves(files):
        manifest = read_manifest(beside.tokens)
        for source in manifest["sources"] if manifest else ():
            yield beside, source


def _changed(path: Path, before: str, there: SetFiles) -> UserError:
    return UserError(
        f"--append: {path} is in {there.tokens} already, as it was before: it had {before}. What is in both "
        "would stand there twice, and the set could not be held against its text any more. Put what is new "
        "into a file of another name and append that, or make the set anew, with --overwrite instead of "
        "--append",
        code="append-input-changed",
    )


def _repeated(name: str, source: dict[str, Any], there: SetFiles, files: SetFiles) -> UserError:
    same = "" if Path(source["path"]).name == Path(name).name else f" (there from {source['path']})"
    why = "it would stand in it twice"
    if there.tokens != files.tokens:
        why = "a model would be tested on what it was trained on"
    return UserError(
        f"--append: the text of {name} is in {there.tokens} already{same}; {why}. Leave it away",
        code="append-input-repeated",
    )
