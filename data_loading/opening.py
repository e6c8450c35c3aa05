"""Tokens by what a user calls them: a path, or a URI of another kind of source."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from conf import AUTO, UserError
from data_loading.tokens import Tokens

SCHEMES: dict[str, str] = {
    "hf": "data_loading.open_hub",
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
        raise UserError(f"{source}: nothing here reads {found[1]}:// ({known or 'paths only'})")
    return found[1]


def open_uri(uri: str, vocab_size: int | None = None) -> Tokens:
    """The tokens of a URI, whose scheme is known. vocab_size: as in `open_tokens`."""
    scheme = scheme_of(uri)
    assert scheme is not None
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
    from data_loading.data import open_sets

    opened = open_sets(str(source), vocab_size, dtype)
    if len(opened) > 1:
        names = " and ".join(one.name for one in opened)
        raise UserError(
            f"{source} is a pair of train and val, {names}. Open one of them, or both: "
            f"StreamingDataset({str(source)!r})"
        )
    return opened[0]
