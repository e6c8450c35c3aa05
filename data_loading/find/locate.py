"""Files of a dataset: at the path that was given, or below Datasets/ by name."""

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


class NotTokenized(UserError):
    """There is a text, but no token file yet."""

    code = "not-tokenized"

    def __init__(
        self, text_path: Path | str, text_bytes: int | None, command: str, vocab_size: int | None = None
    ) -> None:
        """Store the facts.

        Args:
            text_path: The text.
            text_bytes: Its size; None if unknown.
            command: Makes the token file.
            vocab_size: Ids in that file will be below it; None if unknown.
        """
        self.text_path, self.text_bytes, self.command = text_path, text_bytes, command
        self.vocab_size = vocab_size
        size = "" if text_bytes is None else f" ({text_bytes / 1e6:,.1f} MB)"
        super().__init__(f"{text_path}{size} is not tokenized yet. Tokenize it once: {command}")


@dataclass(frozen=True)
class DatasetFiles:
    """A text, its tokens, or both."""

    text: Path | None
    tokens: Path
    """X.npy or the folder X of shards that exists, or the X.npy that the text will get."""
    version: str | None = None
    """Begin of the fingerprint that the set of a folder had; None: the newest."""

    @property
    def files(self) -> SetFiles:
        """Files of the set."""
        return SetFiles(self.tokens, self.version)

    @property
    def is_tokenized(self) -> bool:
        """Whether the set exists."""
        settle(self.files)
        return self.files.exists

    @property
    def given(self) -> Path:
        """Path to show a user: the text if there is one."""
        return self.text or self.tokens


def locate(dataset: Dataset) -> list[DatasetFiles]:
    """Return the place of a dataset's path or name: one, or train and val.

    Raises:
        NothingThere: no such files.
        UserError: several things have the name.
    """
    return places_named(dataset.name) if dataset.path is None else places_at(dataset.path)


def foreign_at(given: str, dtype: str = AUTO) -> Path | None:
    """Return the path if it holds tokens in the format of another program, and neither a set nor a text.

    Args:
        given: A path.
        dtype: Other than auto: a file is raw ids, whatever its name.

    Raises:
        UserError: it shows signs of several formats.
    """
    path = _path(given)
    if path.is_file():
        is_ours = path.name.endswith(".npy") and (is_npy(path) or SetFiles(path).manifest.exists())
        is_ours |= path.name.endswith(".txt") and dtype == AUTO and begins_as_text(path)
    elif path.is_dir():
        is_ours = _place(path) is not None or bool(_pair(f"{path}/")) or any(path.glob("*.docs.npy"))
    else:
        is_ours = _place(_stem(path)) is not None
    return path if not is_ours and is_foreign(path, dtype) else None


def places_at(given: str, key: str = "dataset.path") -> list[DatasetFiles]:
    """Return what a path means: a text, a token file, the stem of both, or train and val.

    Args:
        given: A path.
        key: Name of the option, for messages.

    Raises:
        NothingThere: no such files.
        UserError: it means several things, or is a file that belongs to a set.
    """
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
        return [DatasetFiles(None, path.parent, earlier.group(1))]
    if path.name.endswith((".npy", ".txt")):
        found = _place(_stem(path))
    elif path.is_file():
        return [DatasetFiles(path, tokens_for(path))]
    else:
        found = _place(path)
    pair = [] if path.is_file() else _pair(f"{path}_") or _pair(f"{path}/")
    if found is not None and pair:
        train, val = (place.given for place in pair)
        raise UserError(
            f"{key}={given} is {found.given} as well as {train} with {val}. Choose: {key}={found.given}, or "
            f"dataset.path={train} dataset.val_path={val}",
            code="path-ambiguous",
        )
    if pair:
        return pair
    if found is not None:
        return [found]
    if path.is_dir():
        raise UserError(
            f"{key}={given} is a folder without a manifest.json, and nothing in it shows tokens of another "
            f"program ({', '.join(known_formats())}); expected a token set, or token sets train and val (or "
            "validation) in it, a .txt or .npy file, or the stem that both share"
            + _advice_for_rows(path)
            + damaged_index(path),
            code="folder-not-a-set",
        )
    looked = f"{_stem(path)}.npy, {_stem(path)}.txt" + (
        f", {path}" if path.suffix not in (".npy", ".txt") else ""
    )
    if path.name == given:
        looked += f", here and in {DEFAULT_FOLDER}"
    raise NothingThere(
        f"{key}={given}: not found (looked for {looked}). Put the text there, or tokenize one from "
        f"elsewhere: python pretokenize_dataset.py TEXT --output {_stem(path)}.npy",
        code="path-not-found",
    )


def places_named(name: str) -> list[DatasetFiles]:
    """Return the only set or text below Datasets/ whose name begins so, or train and val of one name.

    Train and val are a folder with both, or NAME_train with NAME_validation or NAME_val.

    Raises:
        NothingThere: no such files.
        UserError: several things have the name, or only held-out text does.
    """
    names = sorted(
        {
            _stem(path).name
            for path in (DEFAULT_FOLDER.iterdir() if DEFAULT_FOLDER.is_dir() else ())
            if path.name.startswith(name)
            and not _belongs_to_another(path.name, name)
            and not path.name.endswith(".docs.npy")
            and (path.is_file() if path.name.endswith((".txt", ".npy")) else _is_set(path))
        },
        key=lambda found: (found.endswith(_VAL_SUFFIXES), found),
    )
    if not names:
        raise NothingThere(_not_found(name), code="dataset-not-found")
    found = [_place(DEFAULT_FOLDER / one) for one in names]
    places = [place for place in found if place is not None]
    if len(names) == 1:
        if places and not names[0].endswith(_VAL_SUFFIXES):
            return places
        if not places and (pair := _pair(f"{DEFAULT_FOLDER / names[0]}/")):
            return pair
        raise UserError(
            f"dataset={name}: only {DEFAULT_FOLDER / names[0]} was found, held-out text without a text to "
            f"train on. Add {DEFAULT_FOLDER / name}_train.txt, or give dataset.path=FILE",
            code="dataset-only-held-out",
        )
    base = names[0].removesuffix("_train")
    if len(places) == len(names) == 2 and base != names[0] and names[1] in [base + s for s in _VAL_SUFFIXES]:
        return places
    files = sorted(str(p) for place in places for p in (place.text, place.tokens) if p and p.exists())
    raise UserError(
        f"dataset={name}: several files have this name: {', '.join(files)}. Choose one: dataset.path=FILE",
        code="dataset-ambiguous",
    )


def _not_found(name: str) -> str:
    message = (
        f"dataset={name}: not found. Expected its text in {DEFAULT_FOLDER}/{name}*.txt (or tokens in "
        f"{DEFAULT_FOLDER}/{name}*.npy) below {Path.cwd()}; or give dataset.path=FILE. To tokenize a text "
        f"from elsewhere: python pretokenize_dataset.py TEXT --output {DEFAULT_FOLDER}/{name}.npy"
    )
    if name not in REGISTRY:
        return message
    from huggingface_hub import constants

    offline = ", on a machine with a network: HF_HUB_OFFLINE is set here" if constants.HF_HUB_OFFLINE else ""
    return message + (
        ". From the hub: dataset.source=hf streams it, with dataset.materialize=true it is tokenized into "
        f"{DEFAULT_FOLDER}/ first (python -m data_loading materialize {name}){offline}"
    )


def _path(given: str) -> Path:
    """Return the path. Raises UserError: it has no name, as `` and `/`."""
    path = Path(given).expanduser()
    named = path if path.name or not given.strip() else path.resolve()
    if not named.name:
        raise UserError(
            f"{given!r}: expected the path of a text, a token file or a folder of shards", code="path-invalid"
        )
    return named


def _advice_for_rows(folder: Path) -> str:
    """Return what to do with a folder of tables or lines of JSON, which hold texts or ids."""
    kind = next((kind for kind in ("parquet", "jsonl") if any(folder.glob(f"*.{kind}*"))), None)
    if kind is None:
        return ""
    loader = {"jsonl": "json"}.get(kind, kind)
    return (
        f". Its .{kind} files with texts are tokenized: python pretokenize_dataset.py {folder}. Those with "
        f"token ids (input_ids): datasets.load_dataset('{loader}', data_files='{folder}/*.{kind}', "
        "split='train').save_to_disk(OUT), then dataset.path=OUT"
    )


def _belongs_to_another(file: str, name: str) -> bool:
    """Return whether a file is of a known dataset whose name only begins so: fineweb-edu is no fineweb."""
    return any(known != name and known.startswith(name) and file.startswith(known) for known in REGISTRY)


def _is_set(folder: Path) -> bool:
    return SetFiles(folder).exists or bool(_pair(f"{folder}/"))


def _pair(prefix: str) -> list[DatasetFiles]:
    """Return PREFIXtrain with PREFIXval or PREFIXvalidation; empty if either is missing."""
    train = _place(Path(f"{prefix}train"))
    val = [place for suffix in _VAL_SUFFIXES if (place := _place(Path(prefix + suffix[1:])))]
    return [train, *val] if train is not None and len(val) == 1 else []


def _stem(path: Path) -> Path:
    name = path.name
    return path.with_name(name[:-4] if name.endswith((".txt", ".npy")) else name)


def _place(stem: Path) -> DatasetFiles | None:
    """Return the text and tokens of a stem, if it has any. Raises UserError: it has two sets."""
    text, tokens = stem.with_name(f"{stem.name}.txt"), stem.with_name(f"{stem.name}.npy")
    sets = [path for path in (tokens, stem) if SetFiles(path).exists or SetFiles(path).commit.is_dir()]
    if len(sets) == 2:
        raise UserError(
            f"{tokens} and the folder {stem} are two token sets of one name. Remove one of them",
            code="path-ambiguous",
        )
    if text.is_file():
        return DatasetFiles(text, sets[0] if sets else tokens)
    return DatasetFiles(None, sets[0]) if sets else None
