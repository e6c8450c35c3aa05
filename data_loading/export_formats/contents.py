"""Contents of an export: ranges of the tokens of one or two sets, read in bounded slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from conf.schema import Dataset
from data_loading.dataset.splits import split_ranges
from data_loading.tokens.lazy_array import search, take
from data_loading.tokens.token_set import TokenSet
from experiment_utils.errors import UserError

SLICE_TOKENS = 1 << 20
GPT2_CONTENT = "055f35ffbbe80047cf328fdedbbda94183fd6d141b74d013a8fcd2a246efebfd"
"""Content hash of GPT-2's own tokenizer, whatever its folder is called."""


@dataclass(frozen=True)
class Split:
    """Tokens `start` to `stop` of a set."""

    tokens: TokenSet
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def begins_document(self) -> bool:
        return is_start(self.tokens, self.start)

    @property
    def ends_document(self) -> bool:
        return self.stop == self.tokens.n_tokens or is_start(self.tokens, self.stop)

    def slices(self, stop: int | None = None) -> Iterator[np.ndarray]:
        """Yield the tokens in order, up to `stop`."""
        last = self.stop if stop is None else stop
        for at in range(self.start, last, SLICE_TOKENS):
            yield np.asarray(self.tokens.tokens[at : min(at + SLICE_TOKENS, last)])


@dataclass(frozen=True)
class Contents:
    """Splits of one export."""

    stem: str
    """Beginning of the file names."""
    splits: dict[str, Split]
    """`all`, or `train` and `val`."""
    tokenizer: dict[str, Any]
    """Entry of the manifest."""
    val_apart: bool = False
    """Whether the held-out tokens are a set with an export of its own."""

    @property
    def is_gpt2(self) -> bool:
        return self.tokenizer["content_hash"] == GPT2_CONTENT


def val_border(token_set: TokenSet) -> int:
    """Return the first token of the held-out part of a set, the same as for a run by default.

    Raises:
        UserError: The set was appended to and has several such parts.
    """
    made = token_set.manifest.get("val") if token_set.manifest else None
    if made is not None and len(made["ranges"]) > 1:
        raise UserError(
            f"{token_set.path} holds out {len(made['ranges'])} parts, one for each text that was appended; "
            "this format has room for one. Tokenize all texts together to write it",
            code="export-several-val-ranges",
        )
    if made is not None:
        return int(made["ranges"][0][0])
    _, val = split_ranges(token_set.n_tokens, token_set.documents, Dataset().val_fraction)
    return val.start


def is_start(token_set: TokenSet, token: int) -> bool:
    """Whether a document starts with this token."""
    starts = token_set.documents
    if starts is None:
        return token == 0
    at = search(starts, np.array([token]))
    return bool(at[0] < len(starts) and take(starts, at)[0] == token)
