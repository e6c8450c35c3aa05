"""open_tokens: tokens by the name that a user knows them by, a path, a name or a URI."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from conf import AUTO
from data_loading.find.locate import DatasetFiles, NothingThere, NotTokenized, foreign_at, places_at
from data_loading.find.verify_set import verify_text
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.pretokenizer.inputs.discover import InputOptions, open_file
from data_loading.pretokenizer.job import command_for
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.text_io.file_names import DEFAULT_FOLDER
from data_loading.tokens.token_set import open_token_set
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError
from experiment_utils.modules import module_name

SCHEMES: dict[str, str] = {
    "hf": "data_loading.hub_stream.open_stream",
    "synthetic": "data_loading.synthetic.synthetic_set",
    "s3": "data_loading.remote.remote_set",
    "r2": "data_loading.remote.remote_set",
    "https": "data_loading.remote.remote_set",
    "http": "data_loading.remote.remote_set",
}
"""Scheme of a URI -> module with its `open_uri(uri, vocab_size) -> Tokens`."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")
Found = str | Path | DatasetFiles
"""A URI, files of another program, or a token set or text of ours."""


def open_tokens(source: str | Path, vocab_size: int | None = None, dtype: str = AUTO) -> Tokens:
    """Open tokens, whichever tokenizer they were made with. Nothing is tokenized.

    Args:
        source: X.npy, a folder X of shards, X.txt with tokens next to it, or the stem X. The name of a set
            below Datasets/. Files of another program (docs/data.md). A URI: synthetic:..., s3://, r2://,
            https://, or hf:// of which a set was made (`materialize`).
        vocab_size: Of the tokenizer, if the source itself does not say it; None: one more than the largest
            id.
        dtype: Of raw ids, if nothing else says it: uint16, uint32, int32, int64.

    Returns:
        The tokens. If the source is a train set with a val set, those of train, with the others as `val_set`.

    Raises:
        NotTokenized: there is only a text.
        UserError: nothing there, or it is broken or does not fit its text.
    """
    found = find(str(source), dtype)
    refuse_dtype(f"dtype {dtype}", str(source), dtype, found)
    sets = [tokens for one in found for tokens in open_found(one, vocab_size, dtype)]
    if len(sets) > 1:
        object.__setattr__(sets[0], "val_set", sets[1])  # kinds of tokens are frozen
    return sets[0]


def scheme_of(source: str) -> str | None:
    """Return the scheme of a URI; None for a path or name.

    Raises:
        UserError: it looks like a URI, and its scheme is unknown.
    """
    found = _SCHEME.match(source)
    if found is None or (found[1] not in SCHEMES and "://" not in source):
        return None
    if found[1] not in SCHEMES:
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise UserError(f"{source}: unknown scheme {found[1]}://; choices are {known}", code="scheme-unknown")
    return found[1]


def find(given: str, dtype: str = AUTO, key: str = "dataset.path") -> Sequence[Found]:
    """Return what a path, name or URI means: one source, or train and val.

    Args:
        given: As a user typed it. A name is the whole name of files below Datasets/, never its beginning.
        dtype: Other than auto: a file is raw ids, whatever its name.
        key: Name of the option, for messages.

    Raises:
        UserError: nothing there, or it can mean several things.
    """
    if scheme_of(given) is not None:
        return [given]
    foreign = foreign_at(given, dtype)
    if foreign is not None:
        return [foreign]
    try:
        return places_at(given, key)
    except NothingThere:
        if Path(given).name == given:
            with suppress(NothingThere):
                return find(str(DEFAULT_FOLDER / given), dtype, key)
        raise


def open_found(found: Found, vocab_size: int | None = None, dtype: str = AUTO) -> Sequence[Tokens]:
    """Open what `find` returned: one set, or train and val. Options are those of `open_tokens`.

    Raises:
        NotTokenized: there is only a text.
        UserError: it is broken, or does not fit its text.
    """
    if isinstance(found, Path):
        return open_foreign(found, Asked(dtype, vocab_size))
    if isinstance(found, DatasetFiles):
        return [_open_place(found, vocab_size)]
    opened: Tokens = importlib.import_module(module_name(SCHEMES[scheme_of(found) or ""])).open_uri(
        found, vocab_size
    )
    return [opened]


def refuse_dtype(option: str, given: str, dtype: str, found: Sequence[Found]) -> None:
    """Raise UserError if a dtype is given, and nothing that was found is of another program."""
    if dtype != AUTO and not any(isinstance(one, Path) for one in found):
        raise UserError(
            f"{option}: it is for raw ids of another program, and {given} holds none. Remove it",
            code="dtype-not-for-format",
        )


def _open_place(place: DatasetFiles, vocab_size: int | None) -> Tokens:
    command = command_for(str(place.text), "NAME_OR_FOLDER")
    if not place.is_tokenized:
        if place.text is None:
            raise UserError(f"{place.tokens}: no such token file", code="tokens-file-missing")
        open_file(place.text, InputOptions(), Tolerance())  # refuses what is no text
        raise NotTokenized(place.text, place.text.stat().st_size, command)
    found = open_token_set(place.tokens, vocab_size, place.version)
    verify_text(found, place, command)
    return found
