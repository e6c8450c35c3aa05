"""Where the files of a dataset lie: the path given, or the default place for its name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from conf import AUTO
from conf.schema import Dataset
from data_loading.hub.named_datasets import REGISTRY
from data_loading.import_formats.format import begins_as_text
from data_loading.import_formats.recognize import damaged_index, is_foreign, known_formats
from data_loading.text_io.file_names import DEFAULT_FOLDER, tokens_for
from data_loading.tokens.commit import settle
from data_loading.tokens.npy import is_npy
from data_loading.tokens.set_files import SetFiles
from experiment_utils.errors import UserError

_VAL_SUFFIXES = ("_validation", "_val")
_EARLIER_MANIFEST = re.compile(r"manifest\.([0-9a-f]+)\.json")


class NothingThere(UserError):
    """No file has the name of the dataset."""


@dataclass(frozen=True)
class Place:
    """text: None where there is none. tokens: the X.npy, or the folder X of shards, that is there, or the
    X.npy that the text will get. version: begin of the fingerprint that a folder's set had; None: the newest.
    """

    text: Path | None
    tokens: Path
    version: str | None = None

    @property
    def files(self) -> SetFiles:
        return SetFiles(self.tokens, self.version)

    @property
    def is_tokenized(self) -> bool:
        settle(self.files)
        return self.files.exists


def locate(dataset: Dataset) -> tuple[Place, Place | None]:
    """(train, val) of a text dataset; val is None where it is a part of train.

    Raises:
        UserError: nothing there, or more than one thing it could be.
    """
    if dataset.path is not None:
        train, val = _at(dataset.path, "dataset.path")
    else:
        train, val = _by_name(dataset.name)
    if dataset.val_path is not None:
        val, more = _at(dataset.val_path, "dataset.val_path")
        if more is not None:
            raise UserError(
                f"dataset.val_path={dataset.val_path} names two files; give the one to be held out",
                code="val-path-is-pair",
            )
    return train, val


def foreign_at(given: str, dtype: str = AUTO) -> Path | None:
    """The path, where it holds tokens in the format of another program and neither a set of ours nor a text.

    dtype: other than auto: as a user says of a file of raw ids, whatever it is called.

    Raises:
        UserError: it shows signs of several formats.
    """
    path = _path(given)
    if path.is_file():
        is_ours = path.name.endswith(".npy") and (is_npy(path) or SetFiles(path).manifest.exists())
        is_ours |= path.name.endswith(".txt") and dtype == AUTO and begins_as_text(path)
    elif path.is_dir():
        is_ours = _place(path) is not None or _pair(f"{path}/") is not None or any(path.glob("*.docs.npy"))
    else:
        is_ours = _place(_stem(path)) is not None
    return path if not is_ours and is_foreign(path, dtype) else None


def _path(given: str) -> Path:
    """Raises UserError: it has no name, as `` and `/`."""
    path = Path(given).expanduser()
    named = path if path.name or not given.strip() else path.resolve()
    if not named.name:
        raise UserError(
            f"{given!r}: expected the path of a text, a token file or a folder of shards", code="path-invalid"
        )
    return named


def _at(given: str, key: str) -> tuple[Place, Place | None]:
    """What a path names: a text, a token file, or the stem that both share."""
    path = _path(given)
    if path.name.endswith(".npy.json"):
        raise UserError(
            f"{key}={given} is the manifest of a token file; give {given[:-5]}", code="path-is-manifest"
        )
    if path.name.endswith(".docs.npy"):
        raise UserError(
            f"{key}={given} is a list of document starts; give {given[:-9]}.npy",
            code="path-is-document-starts",
        )
    earlier = _EARLIER_MANIFEST.fullmatch(path.name)
    if earlier and path.is_file():
        return Place(None, path.parent, earlier.group(1)), None
    if path.name.endswith((".npy", ".txt")):
        found = _place(_stem(path))
    elif path.is_file():
        return Place(path, tokens_for(path)), None
    else:
        found = _place(path)
    pair = None if path.is_file() else _pair(f"{path}_") or _pair(f"{path}/")
    if found is not None and pair is not None:
        one, (train, val) = found.text or found.tokens, (place.text or place.tokens for place in pair)
        raise UserError(
            f"{key}={given} is {one} as well as {train} with {val}. Say which: {key}={one}, or "
            f"dataset.path={train} dataset.val_path={val}",
            code="path-ambiguous",
        )
    if found is not None:
        return found, None
    if pair is not None:
        return pair
    if path.is_dir():
        raise UserError(
            f"{key}={given} is a folder without a manifest.json, and nothing in it shows tokens of another "
            f"program ({', '.join(known_formats())}); expected a token set, or token sets train and val (or "
            "validation) in it, a .txt or .npy file, or the stem that both share"
            + _of_rows(path)
            + damaged_index(path),
            code="folder-not-a-set",
        )
    looked = f"{_stem(path)}.npy, {_stem(path)}.txt" + (
        f", {path}" if path.suffix not in (".npy", ".txt") else ""
    )
    raise NothingThere(
        f"{key}={given}: nothing is there (looked for {looked}). Put the text there, or tokenize one from "
        f"elsewhere: python pretokenize_dataset.py TEXT --output {_stem(path)}.npy",
        code="path-not-found",
    )


def _of_rows(folder: Path) -> str:
    """What to do with a folder of tables or lines of JSON, which hold texts or ids."""
    kind = next((kind for kind in ("parquet", "jsonl") if any(folder.glob(f"*.{kind}*"))), None)
    if kind is None:
        return ""
    loader = {"jsonl": "json"}.get(kind, kind)
    return (
        f". Its .{kind} files with texts are tokenized: python pretokenize_dataset.py {folder}. Those with "
        f"token ids (input_ids): datasets.load_dataset('{loader}', data_files='{folder}/*.{kind}', "
        "split='train').save_to_disk(OUT), then dataset.path=OUT"
    )


def _by_name(name: str) -> tuple[Place, Place | None]:
    """The one thing below Datasets/ whose name begins so, a folder of train and val among them; or NAME_train
    with NAME_validation or NAME_val.
    """
    names = {
        _stem(path).name
        for path in (DEFAULT_FOLDER.iterdir() if DEFAULT_FOLDER.is_dir() else ())
        if path.name.startswith(name)
        and not _is_of_another(path.name, name)
        and not path.name.endswith(".docs.npy")
        and (path.is_file() if path.name.endswith((".txt", ".npy")) else _is_set(path))
    }
    places = {found: _place(DEFAULT_FOLDER / found) for found in sorted(names)}
    if len(places) == 1:
        only, place = places.popitem()
        if place is not None and not only.endswith(_VAL_SUFFIXES):
            return place, None
        if place is None and (pair := _pair(f"{DEFAULT_FOLDER / only}/")) is not None:
            return pair
        raise UserError(
            f"dataset={name}: there is only {DEFAULT_FOLDER / only}, held-out text without a text to "
            f"train on. Put {DEFAULT_FOLDER / name}_train.txt beside it, or say dataset.path=FILE",
            code="dataset-only-held-out",
        )
    if len(places) == 2:
        train, val = sorted(places, key=lambda found: found.endswith(_VAL_SUFFIXES))
        base = train.removesuffix("_train")
        if base != train and val in [base + suffix for suffix in _VAL_SUFFIXES]:
            first, second = places[train], places[val]
            if first is not None:
                return first, second
    if places:
        files = sorted(
            str(p)
            for place in places.values()
            if place
            for p in (place.text, place.tokens)
            if p and p.exists()
        )
        raise UserError(
            f"dataset={name}: more than one thing it could be: {', '.join(files)}. Say which: "
            "dataset.path=FILE",
            code="dataset-ambiguous",
        )
    from huggingface_hub import constants

    offline = ", where there is a network: HF_HUB_OFFLINE is set here" if constants.HF_HUB_OFFLINE else ""
    raise NothingThere(
        f"dataset={name}: nothing found for it. Its text should lie in {DEFAULT_FOLDER}/{name}*.txt (or "
        f"tokens in {DEFAULT_FOLDER}/{name}*.npy) below {Path.cwd()}; or say dataset.path=FILE. To "
        "tokenize a text from elsewhere: python pretokenize_dataset.py TEXT --output "
        f"{DEFAULT_FOLDER}/{name}.npy"
        + (
            ". From the hub: dataset.source=hf streams it, with dataset.materialize=true it is tokenized "
            f"into {DEFAULT_FOLDER}/ first (python -m data_loading materialize {name}){offline}"
            if name in REGISTRY
            else ""
        ),
        code="dataset-not-found",
    )


def _is_of_another(file: str, name: str) -> bool:
    """Whether a file belongs to a known dataset whose name only begins so: fineweb-edu is no fineweb."""
    return any(known != name and known.startswith(name) and file.startswith(known) for known in REGISTRY)


def _is_set(folder: Path) -> bool:
    return SetFiles(folder).exists or _pair(f"{folder}/") is not None


def _pair(prefix: str) -> tuple[Place, Place] | None:
    """Train and val as two sets, PREFIXtrain and PREFIXval or PREFIXvalidation."""
    train = _place(Path(f"{prefix}train"))
    val = [place for suffix in _VAL_SUFFIXES if (place := _place(Path(prefix + suffix[1:])))]
    return (train, val[0]) if train is not None and len(val) == 1 else None


def _stem(path: Path) -> Path:
    name = path.name
    return path.with_name(name[:-4] if name.endswith((".txt", ".npy")) else name)


def _place(stem: Path) -> Place | None:
    """The text and tokens of a stem; None where there is neither. Raises UserError: there are two sets."""
    text, tokens = stem.with_name(f"{stem.name}.txt"), stem.with_name(f"{stem.name}.npy")
    sets = [path for path in (tokens, stem) if SetFiles(path).exists or SetFiles(path).commit.is_dir()]
    if len(sets) == 2:
        raise UserError(
            f"{tokens} and the folder {stem} are two token sets of one name. Remove one of them",
            code="path-ambiguous",
        )
    if text.is_file():
        return Place(text, sets[0] if sets else tokens)
    return Place(None, sets[0]) if sets else None
