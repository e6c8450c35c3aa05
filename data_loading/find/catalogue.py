"""Lists of datasets: those known by name, and the token sets below Datasets/."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conf import schema
from data_loading.find.locate import places_named
from data_loading.hub.named_datasets import REGISTRY
from data_loading.text_io.file_names import DEFAULT_FOLDER
from data_loading.tokens.npy import HEADER_BYTES, open_npy
from data_loading.tokens.read_manifest import read_manifest
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of
from experiment_utils.errors import UserError

_GROUP = Path(__file__).resolve().parents[2] / "conf" / "dataset"
_NO_NAME = ("text", "hf")
"""Choices of `dataset=` that need a path to mean anything."""


@dataclass(frozen=True)
class Description:
    """A dataset known by name."""

    name: str
    what: str
    hub: str | None
    """Its `hf://...`; None: it is made here."""
    size: str
    """Size as its publisher gives it, as text."""
    licence: str | None
    splits: tuple[str, ...]
    tokenizer: str
    """Tokenizer of a run that names no other."""
    streaming: bool
    """Whether it can be streamed from the hub."""
    found: tuple[str, ...]
    """Its files on this machine."""
    tokens: int | None
    """Tokens in these; None if one is not tokenized."""
    needs: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class FoundSet:
    """A token set below `Datasets/`; counts are None if unknown."""

    path: str
    tokens: int | None
    documents: int | None
    tokenizer: str | None
    problem: str | None = None
    """Reason why it cannot be used."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def list_datasets() -> list[Description]:
    """Return the datasets known by name, those of the hub first."""
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
    """Return its first comment, and its tokenizer."""
    lines = path.read_text(encoding="utf-8").splitlines()
    tokenizers = [line.rsplit(":", 1)[1].strip() for line in lines if "/tokenizer@" in line]
    what = lines[0].removeprefix("#").strip() if lines and lines[0].startswith("#") else ""
    return what, (tokenizers or [schema.Tokenizer().name])[0]


def _here(name: str) -> tuple[tuple[str, ...], int | None]:
    """Return the files that a run of `dataset=NAME` reads, and the number of their tokens."""
    try:
        places = places_named(name)
    except UserError:
        return (), None
    manifests = [_manifest(place.tokens) for place in places if place.is_tokenized]
    tokens = [found["tokens"] for found in manifests if isinstance(found, dict)]
    whole = len(tokens) == len(places)
    files = [place.tokens if place.is_tokenized else place.given for place in places]
    return tuple(map(str, files)), sum(tokens) if whole else None


def found_sets(folder: Path = DEFAULT_FOLDER) -> list[FoundSet]:
    """Return the token sets of a folder, and of the folders in it."""
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
    """Return which of its files is missing or has another size than its manifest says; None: none."""
    size = np.dtype(manifest["dtype"]).itemsize
    for part in parts_of(SetFiles(path), manifest):
        try:
            found = part.tokens_path.stat().st_size
        except FileNotFoundError:
            return f"{part.tokens_path.name} is missing"
        except OSError as error:
            return f"{part.tokens_path.name} cannot be read: {error.strerror}"
        expected = HEADER_BYTES + part.tokens * size
        if found != expected:
            return f"{part.tokens_path.name} has {found:,} bytes, its manifest says {expected:,}"
        if not part.documents_path.exists():
            return f"{part.documents_path.name} is missing"
    return None


def _manifest(path: Path) -> dict[str, Any] | str | None:
    """Return the manifest; None without one; the reason if it cannot be read."""
    try:
        return read_manifest(path)
    except UserError as error:
        return str(error)


def _of_lone_file(path: Path) -> tuple[int | None, None, None, str | None]:
    """Return tokens, documents, tokenizer and problem of a file without a manifest."""
    try:
        return len(open_npy(path)), None, None, None
    except UserError as error:
        return None, None, None, str(error)
