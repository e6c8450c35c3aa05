"""Which datasets there are: those known by name, and the token sets that lie here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conf import schema
from data_loading.find.locate import DEFAULT_FOLDER, Place, locate
from data_loading.hub.named_datasets import REGISTRY
from data_loading.tokens.npy import HEADER_BYTES
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from experiment_utils.errors import UserError

_GROUP = Path(__file__).resolve().parents[2] / "conf" / "dataset"
_NO_NAME = ("text", "hf")
"""Choices of `dataset=` that need a path to mean anything."""


@dataclass(frozen=True)
class Description:
    """A dataset known by name.

    hub: where it lies there, as `hf://...` names it; None: it is made here. size: the publisher's, in
    words. tokenizer: what a run takes unless told otherwise. streaming: whether it can be read from the
    hub as it comes. found: its files here. tokens: of these, where they are tokenized.
    """

    name: str
    what: str
    hub: str | None
    size: str
    licence: str | None
    splits: tuple[str, ...]
    tokenizer: str
    streaming: bool
    found: tuple[str, ...]
    tokens: int | None
    needs: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class FoundSet:
    """A token set below `Datasets/`. problem: why it cannot be used; counts are None where unknown."""

    path: str
    tokens: int | None
    documents: int | None
    tokenizer: str | None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_datasets() -> list[Description]:
    """The datasets known by name, those of the hub first."""
    described = []
    for known in REGISTRY.values():
        found, tokens = _here(known.name)
        config = f":{known.config}" if known.config else ""
        revision = f"@{known.revision}" if known.revision else ""
        described.append(
            Description(
                known.name, known.what, f"hf://{known.repository}{config}{revision}", known.size,
                known.licence, known.splits, known.tokenizer, True, found, tokens, known.needs,
            )
        )  # fmt: skip
    for path in sorted(_GROUP.glob("*.yaml")):
        if path.stem not in REGISTRY and path.stem not in _NO_NAME:
            found, tokens = _here(path.stem)
            what, tokenizer = _of_yaml(path)
            described.append(
                Description(
                    path.stem, what, None, "", None, ("train", "val"), tokenizer, False, found, tokens
                )
            )
    return described


def _of_yaml(path: Path) -> tuple[str, str]:
    """What its first line says, and the tokenizer that it asks for."""
    lines = path.read_text(encoding="utf-8").splitlines()
    tokenizers = [line.rsplit(":", 1)[1].strip() for line in lines if "/tokenizer@" in line]
    what = lines[0].removeprefix("#").strip() if lines and lines[0].startswith("#") else ""
    return what, (tokenizers or [schema.Tokenizer().name])[0]


def _here(name: str) -> tuple[tuple[str, ...], int | None]:
    """The files that a run of `dataset=NAME` takes, and how many tokens they hold."""
    try:
        places = [place for place in locate(schema.Dataset(name=name)) if place is not None]
    except UserError:
        return (), None
    manifests = [_manifest(place.tokens) for place in places if place.is_tokenized]
    tokens = [found["tokens"] for found in manifests if isinstance(found, dict)]
    whole = len(tokens) == len(places)
    return tuple(str(_file(place)) for place in places), sum(tokens) if whole else None


def _file(place: Place) -> Path:
    return place.tokens if place.is_tokenized or place.text is None else place.text


def found_sets(folder: Path = DEFAULT_FOLDER) -> list[FoundSet]:
    """The token sets of a folder, and of the folders in it."""
    found = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.name == "manifest.json":
            path = path.parent
        elif (
            path.suffix != ".npy"
            or not path.is_file()
            or path.name.endswith(".docs.npy")
            or SetFiles(path.parent).manifest.exists()
        ):
            continue
        manifest = _manifest(path)
        if isinstance(manifest, str):
            found.append(FoundSet(str(path), None, None, None, manifest))
        elif manifest is not None:
            tokenizer, problem = manifest["tokenizer"]["name"], _not_whole(path, manifest)
            found.append(FoundSet(str(path), manifest["tokens"], manifest["documents"], tokenizer, problem))
        else:
            found.append(FoundSet(str(path), *_of_lone_file(path)))
    return found


def _not_whole(path: Path, manifest: dict[str, Any]) -> str | None:
    """What of its files is not there, or not of the size that its manifest says; None: all of it is."""
    size = np.dtype(manifest["dtype"]).itemsize
    for part in parts_of(SetFiles(path), manifest):
        try:
            there = part.tokens_path.stat().st_size
        except FileNotFoundError:
            return f"{part.tokens_path.name} is missing"
        except OSError as error:
            return f"{part.tokens_path.name} cannot be read: {error.strerror}"
        expected = HEADER_BYTES + part.tokens * size
        if there != expected:
            return f"{part.tokens_path.name} has {there:,} bytes, its manifest says {expected:,}"
        if not part.documents_path.exists():
            return f"{part.documents_path.name} is missing"
    return None


def _manifest(path: Path) -> dict[str, Any] | str | None:
    """None where there is none; why, where it cannot be read."""
    try:
        return read_manifest(path)
    except UserError as error:
        return str(error)


def _of_lone_file(path: Path) -> tuple[int | None, None, None, str | None]:
    """Tokens, documents, tokenizer and problem of a file without a manifest."""
    from data_loading.tokens.npy import open_npy

    try:
        return len(open_npy(path)), None, None, None
    except UserError as error:
        return None, None, None, str(error)
