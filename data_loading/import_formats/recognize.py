"""Find the format of a path by its content."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from conf import AUTO
from data_loading.import_formats.format import Asked, Kind, SplitLayout, read_object
from experiment_utils.errors import UserError
from memory.files.file_kinds import NOT_FETCHED, head_of, not_expected
from memory.files.file_kinds import kind_of as file_kind

_VAL = ("val", "validation", "eval")


@cache
def _kinds() -> tuple[list[Kind], list[Kind]]:
    """Return (formats with a sure sign, formats that are tried if none of these shows)."""
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
    """Return the names of all formats."""
    return [kind.name for kinds in _kinds() for kind in kinds]


def kind_of(path: Path, dtype: str = AUTO) -> Kind | None:
    """Return the format that shows, None if none does.

    Args:
        path: File or folder.
        dtype: Any but auto: a file without a sign holds raw ids.

    Raises:
        UserError: Several formats show.
    """
    for kinds in _kinds():
        signs = {kind: sign for kind in kinds if (sign := kind.sign(path)) is not None}
        if len(signs) > 1:
            shown = ", and ".join(f"{sign} ({kind.name})" for kind, sign in signs.items())
            raise UserError(
                f"{path} holds {shown}; expected one format. Put each into its own folder",
                code="several-formats",
            )
        if signs:
            return next(iter(signs))
    if dtype != AUTO and path.is_file():
        return _kinds()[1][-1]
    return None


def is_foreign(path: Path, dtype: str = AUTO) -> bool:
    """Whether the format of a path, or of the folders train and val in it, is known."""
    return kind_of(path, dtype) is not None or bool(_folders(path))


def open_layouts(path: Path, asked: Asked) -> dict[str, tuple[Kind, SplitLayout]]:
    """Return `all`, or `train` and `val`, each with its format.

    Raises:
        UserError: The format is not known, or the files are damaged.
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


def _opened(kind: Kind, path: Path, asked: Asked) -> dict[str, SplitLayout]:
    """Call `Kind.open`. If files are placeholders of Git LFS and the like, the error names one of them."""
    try:
        return kind.open(path, asked)
    except UserError:
        stem = str(path).removesuffix(".bin").removesuffix(".idx")
        near = [path, Path(f"{stem}.bin"), Path(f"{stem}.idx")]
        for file in sorted(path.rglob("*")) if path.is_dir() else near:
            found = file_kind(head_of(file)) if file.is_file() else None
            if found is not None and found.id in NOT_FETCHED:
                raise UserError(
                    f"{file} is {found.name}; expected tokens as {kind.name} has them. "
                    f"{found.advice_for(file)}",
                    code="not-fetched",
                ) from None
        raise


def damaged_index(path: Path) -> str:
    """Return a note on an index.json (litdata, mosaicml-streaming) that cannot be read; empty otherwise."""
    index = path / "index.json"
    if not index.is_file() or read_object(index) is not None:
        return ""
    if (other := not_expected(index, "a JSON object")) is not None:
        return f". {other}"
    return (
        f". Its index.json is no JSON object: is it cut short ({index.stat().st_size:,} bytes)? Copy it again"
    )


def _folders(path: Path) -> dict[str, Path]:
    """Return the folders train and val (or validation, eval) of known formats; `all`: there is only train."""
    found = {
        name: path / name
        for name in ("train", *_VAL)
        if (path / name).is_dir() and kind_of(path / name) is not None
    }
    if "train" not in found or len(found) > 2:
        return {}
    return dict(zip(("train", "val") if len(found) == 2 else ("all",), found.values(), strict=True))
