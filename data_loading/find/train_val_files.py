"""Open the train and val of a run if at least one of them was written by another program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from conf import AUTO, schema
from data_loading.find.locate import foreign_at
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError


def foreign_paths(dataset: schema.Dataset) -> tuple[Path | None, Path | None]:
    """Return dataset.path and dataset.val_path, each None unless another program wrote its tokens.

    Raises:
        UserError: dataset.dtype is given, and both are None.
    """
    given = (dataset.path, dataset.val_path) if dataset.source == "text" else (None, None)
    train, val = (foreign_at(path, dataset.dtype) if path else None for path in given)
    if dataset.dtype != AUTO and train is None and val is None:
        refuse_dtype(f"dataset.dtype={dataset.dtype}", dataset.path or dataset.name)
    return train, val


def refuse_dtype(given: str, path: str) -> None:
    """Refuse a dtype for a set that has its own. Raises UserError."""
    raise UserError(
        f"{given}: it is for ids without a header, and {path} holds none. Leave it out",
        code="dtype-not-for-format",
    )


def open_sides(
    dataset: schema.Dataset,
    foreign: tuple[Path | None, Path | None],
    vocab_size: int | None,
    open_ours: Callable[[schema.Dataset], Sequence[Tokens]],
) -> list[Tokens]:
    """Return one set, or train and val.

    Args:
        dataset: Of the configuration.
        foreign: From `foreign_paths`.
        vocab_size: Of the run's tokenizer.
        open_ours: Opens sets of this program.

    Raises:
        UserError: One of them cannot be opened, or dataset.val_path names two sets.
    """
    train_at, val_at = foreign
    asked = Asked(dataset.dtype, vocab_size)
    side = replace(dataset, val_path=None)
    train: Sequence[Tokens] = open_foreign(train_at, asked) if train_at else open_ours(side)
    if dataset.val_path is None:
        return [*train]
    side = replace(dataset, path=dataset.val_path, val_path=None)
    val: Sequence[Tokens] = open_foreign(val_at, asked) if val_at else open_ours(side)
    if len(val) > 1:
        raise UserError(
            f"dataset.val_path={dataset.val_path} names a train and a val; give the one to be held out",
            code="val-path-is-pair",
        )
    return [train[0], val[0]]
