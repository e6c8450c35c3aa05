"""What an export holds: ranges of the tokens of one or two sets, read in bounded slices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from conf.schema import Dataset
from data_loading.dataset.splits import split_ranges
from data_loading.tokens.token_set import TokenSet
from experiment_utils.errors import UserError

SLICE_TOKENS = 1 << 20
GPT2_CONTENT = "055f35ffbbe80047cf328fdedbbda94183fd6d141b74d013a8fcd2a246efebfd"
"""Content hash of GPT-2's own tokenizer, whatever its folder is called."""


class ArrayLike(Protocol):
    """A 1-D array of integers of which slices can be had."""

    @property
    def dtype(self) -> np.dtype: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> np.ndarray: ...


class Joined:
    """The tokens of files one behind the other; a file is mapped when it is read, since there may be many.

    lengths: tokens of each file. open_part: maps the file of that number.
    """

    def __init__(
        self, lengths: Sequence[int], dtype: np.dtype, open_part: Callable[[int], np.ndarray]
    ) -> None:
        self._ends, self.dtype, self._open = np.cumsum(lengths, dtype=np.int64), dtype, open_part

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, step = part.indices(len(self))
        found = [np.empty(0, self.dtype)]
        number = int(np.searchsorted(self._ends, start, side="right"))
        at = start
        while at < stop:
            end = int(self._ends[number])
            array = self._open(number)
            offset = end - len(array)
            found.append(array[at - offset : stop - offset])
            at, number = end, number + 1
        return np.concatenate(found)[::step]


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
        """The tokens in order, up to `stop`."""
        last = self.stop if stop is None else stop
        for at in range(self.start, last, SLICE_TOKENS):
            yield np.asarray(self.tokens.tokens[at : min(at + SLICE_TOKENS, last)])


@dataclass(frozen=True)
class Contents:
    """stem: of the files' names. splits: `all`, or `train` and `val`. tokenizer: as in the manifest.

    val_apart: what is held out is a set of its own, with an export of its own.
    """

    stem: str
    splits: dict[str, Split]
    tokenizer: dict[str, Any]
    val_apart: bool = False

    @property
    def is_gpt2(self) -> bool:
        return self.tokenizer["content_hash"] == GPT2_CONTENT


def val_border(token_set: TokenSet) -> int:
    """The token at which the held-out part of a set begins: where it begins for a run by default.

    Raises:
        UserError: the set was appended to and has several such parts.
    """
    made = token_set.manifest.get("val") if token_set.manifest else None
    if made is not None and len(made["ranges"]) > 1:
        raise UserError(
            f"{token_set.path} holds out {len(made['ranges'])} parts, one for each text that was appended; "
            "this format has room for one, the last. Tokenize all texts together to write it",
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
    at = bisect_left(range(len(starts)), token, key=lambda number: int(starts[number : number + 1][0]))
    return at < len(starts) and int(starts[at : at + 1][0]) == token


def document_lengths(token_set: TokenSet) -> Iterator[np.ndarray]:
    """Tokens of each document, int64, in slices."""
    starts, tokens = token_set.documents, token_set.n_tokens
    if starts is None:
        yield np.array([tokens], np.int64)
        return
    for at in range(0, len(starts), SLICE_TOKENS):
        part = np.asarray(starts[at : at + SLICE_TOKENS + 1]).astype(np.int64)
        if at + SLICE_TOKENS >= len(starts):
            part = np.append(part, tokens)
        yield np.diff(part)
