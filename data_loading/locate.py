"""Where the files of a dataset lie: the path given, or the default place for its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conf import UserError
from conf.schema import Dataset
from data_loading.set_files import SetFiles, settle

DEFAULT_FOLDER = Path("Datasets")
_VAL_SUFFIXES = ("_validation", "_val")
TEXT_SUFFIXES = (".txt",)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".parquet", ".arrow")
COMPRESSED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")


@dataclass(frozen=True)
class Place:
    """text: None where there is none. tokens: the X.npy that is there, or that the text will get."""

    text: Path | None
    tokens: Path

    @property
    def is_tokenized(self) -> bool:
        settle(SetFiles(self.tokens))
        return self.tokens.exists()


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
                f"dataset.val_path={dataset.val_path} names two files; give the one to be held out"
            )
    return train, val


def tokens_beside(text: Path) -> Path:
    """X.npy for X.txt, X.jsonl.zst ...; for a text of another name, that name with .npy added."""
    name = bare_name(text.name)
    known = (*TEXT_SUFFIXES, *JSON_SUFFIXES, *TABLE_SUFFIXES)
    suffix = next((suffix for suffix in known if name.endswith(suffix)), "")
    return text.with_name((name if suffix else text.name).removesuffix(suffix) + ".npy")


def bare_name(name: str) -> str:
    """A file's name without what says that it is compressed."""
    return next((name.removesuffix(end) for end in COMPRESSED_SUFFIXES if name.lower().endswith(end)), name)


def has_known_suffix(name: str) -> bool:
    """Whether a folder's file of this name is one of its texts (a plain .json may be anything)."""
    bare = bare_name(name).lower()
    if name.lower().endswith((".json", *TABLE_SUFFIXES)):
        return name.lower().endswith(".parquet")
    return bare.endswith((*TEXT_SUFFIXES, *JSON_SUFFIXES))


def _at(given: str, key: str) -> tuple[Place, Place | None]:
    """What a path names: a text, a token file, or the stem that both share."""
    path = Path(given).expanduser()
    if path.name.endswith(".docs.npy"):
        raise UserError(f"{key}={given} is a list of document starts; give {given[:-9]}.npy")
    if path.name.endswith((".npy", ".txt")):
        found = _place(_stem(path))
    elif path.is_file():
        return Place(path, tokens_beside(path)), None
    else:
        found = _place(path)
    if found is not None:
        return found, None
    train = _place(path.with_name(f"{path.name}_train"))
    val = [_place(path.with_name(f"{path.name}{suffix}")) for suffix in _VAL_SUFFIXES]
    if train is not None and len([place for place in val if place]) == 1:
        return train, next(place for place in val if place)
    if path.is_dir():
        raise UserError(
            f"{key}={given} is a folder; expected a .txt or .npy file, or the stem that both share"
        )
    looked = f"{_stem(path)}.npy, {_stem(path)}.txt" + (
        f", {path}" if path.suffix not in (".npy", ".txt") else ""
    )
    raise UserError(
        f"{key}={given}: nothing is there (looked for {looked}). Put the text there, or tokenize one from "
        f"elsewhere: python pretokenize_dataset.py TEXT --output {_stem(path)}.npy"
    )


def _by_name(name: str) -> tuple[Place, Place | None]:
    """The one thing below Datasets/ whose name begins so; or NAME_train with NAME_validation or NAME_val."""
    names = {
        _stem(path).name
        for path in (DEFAULT_FOLDER.iterdir() if DEFAULT_FOLDER.is_dir() else ())
        if path.name.startswith(name)
        and path.name.endswith((".txt", ".npy"))
        and not path.name.endswith(".docs.npy")
        and path.is_file()
    }
    places = {found: _place(DEFAULT_FOLDER / found) for found in sorted(names)}
    if len(places) == 1:
        only, place = places.popitem()
        if place is not None and not only.endswith(_VAL_SUFFIXES):
            return place, None
        raise UserError(
            f"dataset={name}: there is only {DEFAULT_FOLDER / only}, held-out text without a text to "
            f"train on. Put {DEFAULT_FOLDER / name}_train.txt beside it, or say dataset.path=FILE"
        )
    if len(places) == 2:
        train, val = sorted(places, key=lambda found: found.endswith(_VAL_SUFFIXES))
        base = train.removesuffix("_train")
        if base != train and val in [base + suffix for suffix in _VAL_SUFFIXES]:
            first, second = places[train], places[val]
            assert first is not None
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
            "dataset.path=FILE"
        )
    raise UserError(
        f"dataset={name}: nothing found for it. Its text should lie in {DEFAULT_FOLDER}/{name}*.txt (or "
        f"tokens in {DEFAULT_FOLDER}/{name}*.npy) below {Path.cwd()}; or say dataset.path=FILE. To "
        "tokenize a text from elsewhere: python pretokenize_dataset.py TEXT --output "
        f"{DEFAULT_FOLDER}/{name}.npy"
    )


def _stem(path: Path) -> Path:
    name = path.name
    return path.with_name(name[:-4] if name.endswith((".txt", ".npy")) else name)


def _place(stem: Path) -> Place | None:
    """The text and tokens of a stem; None where there is neither."""
    text, tokens = stem.with_name(f"{stem.name}.txt"), stem.with_name(f"{stem.name}.npy")
    if text.is_file():
        return Place(text, tokens)
    return Place(None, tokens) if tokens.is_file() or SetFiles(tokens).commit.is_dir() else None
