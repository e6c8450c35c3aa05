"""Which format a path holds, by its content."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from conf import AUTO
from data_loading.import_formats.format import Asked, Kind, Layout, read_object
from experiment_utils.errors import UserError
from memory.file_kinds import NOT_FETCHED, head_of, not_expected
from memory.file_kinds import kind_of as file_kind

_VAL = ("val", "validation", "eval")


@cache
def _kinds() -> tuple[list[Kind], list[Kind]]:
    """(those that content shows surely, those that are tried when none of these is there)."""
    from data_loading.import_formats.hugging_face import HuggingFace
    from data_loading.import_formats.litdata import LitData
    from data_loading.import_formats.mosaic import Mosaic
    from data_loading.import_formats.numpy_shards import NumpyFile, NumpyShards, Templar
    from data_loading.import_formats.raw import NanoGPT, Raw
    from data_loading.import_formats.read_llm_c import LlmC
    from data_loading.import_formats.read_megatron import Megatron
    from data_loading.import_formats.read_mypt import MyPT

    sure: list[Kind] = [
        LlmC(), Megatron(), MyPT(), LitData(), Mosaic(), HuggingFace(), Templar(), NumpyFile(),
    ]  # fmt: skip
    return sure, [NanoGPT(), NumpyShards(), Raw()]


def known_formats() -> list[str]:
    """Their names."""
    return [kind.name for kinds in _kinds() for kind in kinds]


def kind_of(path: Path, dtype: str = AUTO) -> Kind | None:
    """The one format that shows; None where none does. dtype: other than auto: the file may be raw ids.

    Raises:
        UserError: several do.
    """
    for kinds in _kinds():
        signs = {kind: sign for kind in kinds if (sign := kind.sign(path)) is not None}
        if len(signs) > 1:
            told = ", and ".join(f"{sign} ({kind.name})" for kind, sign in signs.items())
            raise UserError(
                f"{path} holds {told}: it is not clear which is meant. Put each into its own folder",
                code="several-formats",
            )
        if signs:
            return next(iter(signs))
    if dtype != AUTO and path.is_file():
        return _kinds()[1][-1]
    return None


def is_foreign(path: Path, dtype: str = AUTO) -> bool:
    """Whether something here knows the format of this path, or of the folders train and val in it."""
    return kind_of(path, dtype) is not None or bool(_folders(path))


def open_layouts(path: Path, asked: Asked) -> dict[str, tuple[Kind, Layout]]:
    """`all`, or `train` and `val`, each with the format it is of.

    Raises:
        UserError: none is known, or what is there is damaged.
    """
    kind = kind_of(path, asked.dtype)
    if kind is not None:
        return {split: (kind, layout) for split, layout in _opened(kind, path, asked).items()}
    folders = _folders(path)
    if not folders:
        raise UserError(
            f"{path} holds no tokens in a format that is known here (docs/data.md lists them)"
            + damaged_index(path),
            code="format-unknown",
        )
    found = {}
    for split, folder in folders.items():
        inner = kind_of(folder)
        if inner is None:
            raise UserError(
                f"{folder} was changed while it was read. Type the same command again",
                code="changed-while-read",
            )
        parts = _opened(inner, folder, asked)
        if set(parts) != {"all"}:
            raise UserError(
                f"{folder} holds {' and '.join(parts)} itself. Give it as dataset.path",
                code="holds-splits-itself",
            )
        found[split] = (inner, parts["all"])
    return found


def _opened(kind: Kind, path: Path, asked: Asked) -> dict[str, Layout]:
    """As `Kind.open`. What is wrong may be that files were not fetched: then the error names one of them."""
    try:
        return kind.open(path, asked)
    except UserError:
        stem = str(path).removesuffix(".bin").removesuffix(".idx")
        near = [path, Path(f"{stem}.bin"), Path(f"{stem}.idx")]
        for file in sorted(path.rglob("*")) if path.is_dir() else near:
            found = file_kind(head_of(file)) if file.is_file() else None
            if found is not None and found.id in NOT_FETCHED:
                told = f"{file} is {found.name}; expected tokens as {kind.name} has them"
                raise UserError(f"{told}. {found.advice_for(file)}", code="not-fetched") from None
        raise


def damaged_index(path: Path) -> str:
    """Said of a folder whose index.json, as litdata and mosaicml-streaming write it, cannot be read."""
    index = path / "index.json"
    if not index.is_file() or read_object(index) is not None:
        return ""
    if (other := not_expected(index, "a JSON object")) is not None:
        return f". {other}"
    return (
        f". Its index.json is no JSON object: is it cut short ({index.stat().st_size:,} bytes)? Copy it again"
    )


def _folders(path: Path) -> dict[str, Path]:
    """Folders train and val (or validation, eval) of a folder, each of a known format; `all`: only train.

    A test part is left alone.
    """
    there = {
        name: path / name
        for name in ("train", *_VAL)
        if (path / name).is_dir() and kind_of(path / name) is not None
    }
    if "train" not in there or len(there) > 2:
        return {}
    return dict(zip(("train", "val") if len(there) == 2 else ("all",), there.values(), strict=True))
