"""Tokens by what a user calls them: a path, or a URI of another kind of source."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from conf import AUTO, schema
from data_loading.dataset.splits import Share
from data_loading.find.locate import foreign_at, locate
from data_loading.find.prepared_data import Data, NotTokenized, split_data
from data_loading.find.train_val_files import refuse_dtype
from data_loading.find.verify_set import verify_text
from data_loading.import_formats.foreign_set import open_foreign
from data_loading.import_formats.format import Asked
from data_loading.pretokenizer.inputs.discover import InputOptions, open_file
from data_loading.pretokenizer.job import command_for
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.tokens.token_set import open_token_set
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

SCHEMES: dict[str, str] = {
    "hf": "data_loading.hub.open_hub",
    "synthetic": "data_loading.synthetic.synthetic_set",
    "s3": "data_loading.remote.remote_set",
    "r2": "data_loading.remote.remote_set",
    "https": "data_loading.remote.remote_set",
    "http": "data_loading.remote.remote_set",
}
"""Scheme of a URI to the module that opens such: `open_uri(uri, vocab_size) -> Tokens`."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")


def scheme_of(source: str) -> str | None:
    """The scheme of a URI; None for a path.

    Raises:
        UserError: it looks like a URI, and nothing here reads such.
    """
    found = _SCHEME.match(source)
    if found is None or (found[1] not in SCHEMES and "://" not in source):
        return None
    if found[1] not in SCHEMES:
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise UserError(
            f"{source}: nothing here reads {found[1]}:// ({known or 'paths only'})", code="scheme-unknown"
        )
    return found[1]


def open_uri(uri: str, vocab_size: int | None = None) -> Tokens:
    """The tokens of a URI, whose scheme is known. vocab_size: as in `open_tokens`."""
    scheme = scheme_of(uri)
    if scheme is None:
        raise UserError(
            f"{uri} is a path; expected a URI with one of {', '.join(SCHEMES)}", code="uri-expected"
        )
    opened: Tokens = importlib.import_module(SCHEMES[scheme]).open_uri(uri, vocab_size)
    return opened


def open_tokens(source: str | Path, vocab_size: int | None = None, dtype: str = AUTO) -> Tokens:
    """The tokens of one source: X.npy or a folder X of shards, `.txt` beside them or not, files of another
    program (docs/data.md), or a URI.

    vocab_size: of the tokenizer, where the source itself does not say; None: one more than the largest id.
    dtype: of raw ids that nothing else tells of: uint16, uint32, int32, int64.

    Raises:
        UserError: nothing there, or it is broken.
        NotTokenized: there is only a text.
    """
    if isinstance(source, str) and scheme_of(source) is not None:
        return open_uri(source, vocab_size)
    opened = open_sets(str(source), vocab_size, dtype)
    if len(opened) > 1:
        names = " and ".join(one.name for one in opened)
        raise UserError(
            f"{source} is a pair of train and val, {names}. Open one of them, or both: "
            f"StreamingDataset({str(source)!r})",
            code="path-is-pair",
        )
    return opened[0]


def open_for_reading(source: str, val: Share | None, test: Share = 0) -> Data:
    """The tokens of a path or URI, whichever tokenizer they were made with; nothing is tokenized.

    val, test: as in `split_data`.

    Raises:
        NotTokenized: there is only a text.
        UserError: nothing there, or it does not fit its text.
    """
    if scheme_of(source) is not None:
        return split_data(open_uri(source), None, None, val, test)
    sets = open_sets(source)
    if len(sets) > 1 and val is not None:
        raise UserError(
            f"val={val}: {source} has a val of its own, {sets[1].name}. Take val away", code="val-given-twice"
        )
    return split_data(sets[0], sets[1] if len(sets) > 1 else None, None, val, test)


def open_sets(path: str, vocab_size: int | None = None, dtype: str = AUTO) -> list[Tokens]:
    """The tokens of a path: one set, or train and val.

    vocab_size: of the tokenizer of a lone file; None: one more than its largest id. dtype: of raw ids.

    Raises:
        NotTokenized: there is only a text.
        UserError: nothing there, or it does not fit its text.
    """
    foreign = foreign_at(path, dtype)
    if foreign is not None:
        return [*open_foreign(foreign, Asked(dtype, vocab_size))]
    if dtype != AUTO:
        refuse_dtype(f"dtype {dtype}", path)
    dataset = schema.Dataset(source="text", path=path)
    sets: list[Tokens] = []
    for place in locate(dataset):
        if place is None:
            continue
        if not place.is_tokenized:
            if place.text is None:
                raise UserError(f"{place.tokens}: no such token file", code="tokens-file-missing")
            open_file(place.text, InputOptions(), Tolerance())  # refuses what is no text
            command = command_for(str(place.text), "NAME_OR_FOLDER")
            raise NotTokenized(place.text, place.text.stat().st_size, command)
        found = open_token_set(place.tokens, vocab_size, place.version)
        verify_text(found, place, command_for(str(place.text), "NAME_OR_FOLDER"))
        sets.append(found)
    return sets
