"""SyntheticSet: tokens of a `synthetic:` URI, split, ordered and read as a set of files is."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from conf import AUTO
from data_loading.pretokenizer.blocks import token_dtype
from data_loading.readers.choose_reader import READERS, ReaderOptions
from data_loading.readers.extents import Extents
from data_loading.readers.reader import Reader, RunReader
from data_loading.synthetic.law import Law
from data_loading.synthetic.synthetic_uri import SyntheticUri, parse_synthetic
from data_loading.tokens.lazy_array import LazyValues
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

GENERATOR_VERSION = 1
"""Increased when any token changes: runs on the tokens of before are other runs."""


class SyntheticSet(Tokens):
    """Tokens that are computed at each read, any number of them; none is stored.

    Only the kind `copy` has documents.
    """

    def __init__(self, uri: SyntheticUri) -> None:
        self.uri, self.law = uri, uri.law
        self.tokens: LazyValues = _Computed(self.law, uri.tokens)
        each = self.law.document_tokens
        self.documents: LazyValues | None = (
            None if each is None else _EvenStarts(-(-uri.tokens // each), each)
        )
        self.vocab_size = uri.vocab_size
        facts = f"synthetic {GENERATOR_VERSION} {uri.kind} {uri.vocab_size} {uri.tokens} {uri.seed}"
        self.fingerprint = hashlib.sha256(facts.encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URI, which determines all tokens."""
        return SyntheticSet, (self.uri,)

    @property
    def name(self) -> str:
        return str(self.uri)

    @property
    def tokenizer_name(self) -> str:
        return "ids"

    def overlaps(self, other: Tokens) -> bool:
        """Return whether they differ in their number alone: one is the beginning of the other."""
        return isinstance(other, SyntheticSet) and replace(self.uri, tokens=other.uri.tokens) == other.uri

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        return self.law.floor_loss(starts, seq_len, shift, masked=masked)

    def own_reader(self, options: ReaderOptions) -> tuple[Reader, str]:
        """Return the reader. Raises UserError: an option that needs files."""
        if options.reader not in READERS:
            raise UserError(
                f"reader {options.reader!r}: choices are {', '.join(READERS)}", code="reader-unknown"
            )
        for name, value, default in (
            ("reader", options.reader, AUTO),
            ("max_resident", options.max_resident_bytes, None),
            ("verify", options.verify, "set"),
        ):
            if value != default:
                raise UserError(
                    f"{name}={value}: the tokens of {self.name} are computed, without a file. "
                    f"Remove dataset.{name}",
                    code="synthetic-has-no-file",
                )
        return ComputedReader(self.law, self.tokens), "computed at each read, none of them stored"


def open_uri(uri: str, vocab_size: int | None = None) -> SyntheticSet:
    """Open the tokens of `synthetic:KIND[:VOCAB[:TOKENS[:SEED]]]`. vocab_size: as in `parse_synthetic`.

    Raises:
        UserError: another form, a part out of bounds, more ids than the tokenizer has.
    """
    return SyntheticSet(parse_synthetic(uri, vocab_size))


class _Computed(LazyValues):
    """Tokens of a law."""

    def __init__(self, law: Law, length: int) -> None:
        self._law, self._length = law, length
        self.dtype = token_dtype(law.vocab_size)

    def __len__(self) -> int:
        return self._length

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found = np.empty(stop - start, self.dtype)
        step = self._law.tokens_at_once
        for first in range(0, len(found), step):
            piece = found[first : first + step]
            piece[:] = self._law.spans(np.array([start + first]), len(piece))[0]
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        return self._law.spans(places, 1)[:, 0].astype(self.dtype)


class _EvenStarts(LazyValues):
    """Starts of documents of one length."""

    dtype = np.dtype("<u8")

    def __init__(self, documents: int, tokens: int) -> None:
        self._documents, self._tokens = documents, tokens

    def __len__(self) -> int:
        return self._documents

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.take(np.arange(start, stop))

    def take(self, places: np.ndarray) -> np.ndarray:
        found: np.ndarray = (places * self._tokens).astype(self.dtype)
        return found


class ComputedReader(RunReader):
    """A reader that computes the tokens at a place instead of reading a file."""

    name = "computed"

    def __init__(self, law: Law, tokens: LazyValues) -> None:
        nothing, whole = np.zeros(1, np.int64), np.array([0, len(tokens)])
        super().__init__(
            Extents(tokens.dtype, (np.empty(0, np.uint8),), (None,), (0,), nothing, nothing, whole),
            gives_hints=False,
        )
        self._law = law

    def _hint(self, buffer: int, offset_bytes: int, length_bytes: int) -> None:
        """Do nothing: there is no disk to read from."""

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        size = self.extents.dtype.itemsize
        starts, width = offsets_bytes // size, length_bytes // size
        found = np.empty((len(starts), width), self.extents.dtype)
        step = max(self._law.tokens_at_once // width, 1)
        for first in range(0, len(starts), step):
            found[first : first + step] = self._law.spans(starts[first : first + step], width)
        return found.view(np.dtype((np.void, length_bytes)))[:, 0]
