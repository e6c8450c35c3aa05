"""Tokens with their splits: train, val and test as ranges of one set, or val as a set of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from conf import schema
from data_loading.dataset.splits import (
    Share,
    Splits,
    check_share,
    hold_out,
    other_ranges,
    split_set,
    tokens_of,
)
from data_loading.dataset.windows import windows_in
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

_COMPARED_IDS = 1 << 22
_HOW_TO_HOLD_OUT = {
    "val": "dataset.val_fraction=0.05 or dataset.val_tokens=1M (in Python val=0.05)",
    "test": "dataset.test_fraction=0.05 or dataset.test_tokens=1M (in Python test=0.05)",
}


@dataclass(frozen=True)
class Data:
    """Tokens with their splits."""

    is_counted: ClassVar[bool] = True
    """Whether the number of tokens is known; False for a stream."""
    train: Tokens
    train_ranges: tuple[range, ...]
    """Token indices, ascending; disjoint, also from val and test if these are parts of the same set."""
    val: Tokens
    val_ranges: tuple[range, ...]
    """Empty if nothing is held out as val."""
    vocab_size: int
    eot_id: int | None
    """End-of-text id; None if unknown."""
    tokenizer_name: str
    fingerprint: str
    """Identity of both sets and the vocabulary; independent of paths."""
    test_ranges: tuple[range, ...] = ()
    """Ranges of the set of train."""
    bos_id: int | None = None
    """Begin-of-text id of the tokenizer, for tokens without a list of document starts."""
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)
    """Tokenizer of the run, if it has loaded one."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave the tokenizer out: a process that reads windows needs none."""
        return {**self.__dict__, "tokenizer": None}

    def ranges_of(self, split: str) -> tuple[Tokens, tuple[range, ...]]:
        """Return the set and the ranges of `train`, `val` or `test`.

        Raises:
            UserError: another name, or nothing is held out as this split.
        """
        found = {
            "train": (self.train, self.train_ranges),
            "val": (self.val, self.val_ranges),
            "test": (self.train, self.test_ranges),
        }.get(split)
        if found is None:
            raise UserError(f"split {split!r}: choices are train, val, test", code="split-unknown")
        if split != "train" and not found[1]:
            raise UserError(
                f"{self.train.name} has no {split} split: hold one out with {_HOW_TO_HOLD_OUT[split]}",
                code=f"no-{split}-split",
            )
        return found

    @property
    def parts(self) -> list[Data]:
        """Sources: itself alone. A mixture has several."""
        return [self]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have tokens."""
        held_out = {"val": self.val_ranges, "test": self.test_ranges}
        return ("train", *(name for name, ranges in held_out.items() if ranges))

    def windows(self, split: str, seq_len: int, shift: int = 1) -> int:
        """Return the windows of `seq_len` inputs and as many labels; none crosses the end of a range."""
        _, ranges = self.ranges_of(split)
        return sum(windows_in(len(tokens), seq_len, shift=shift) for tokens in ranges)

    def tokens(self, split: str) -> int:
        """Return the tokens of a split; 0 if it does not exist."""
        return sum(map(len, self.ranges_of(split)[1])) if split in self.splits else 0

    def describe(self) -> dict[str, Any]:
        """Return facts for run.json and for people."""
        sets = [self.train] if self.val is self.train else [self.train, self.val]
        documents = [len(s.documents) for s in sets if s.documents is not None]
        options = (getattr(self.train, "manifest", None) or {}).get("options", {})
        chosen = {name: options[name] for name in ("eos", "bos") if name in options}
        return {
            "path": self.train.name,
            "val_path": self.val.name if self.val is not self.train else None,
            "file_bytes": sum(s.file_bytes for s in sets),
            "dtype": self.train.tokens.dtype.name,
            "tokens": sum(s.n_tokens for s in sets),
            "documents": sum(documents) if len(documents) == len(sets) else None,
            **{f"{split}_tokens": self.tokens(split) for split in ("train", "val", "test")},
            "tokenizer": self.tokenizer_name,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "sets": [found.fingerprint for found in sets],
            **({"document_ends": chosen} if chosen else {}),
        }


def split_data(
    train: Tokens,
    val_set: Tokens | None = None,
    tokenizer: Tokenizer | None = None,
    val: Share | None = None,
    test: Share = 0,
    *,
    bos_id: int | None = None,
) -> Data:
    """Return the splits of one set; or train and test of one, and another as val.

    Args:
        train: A set.
        val_set: All of it is val.
        tokenizer: Of the run; None: vocabulary and end-of-text id are those of train.
        val: Held out of a lone set, as a fraction (float) or in tokens (int); 0: nothing. None: the part that
            the set was made with, else a tenth. The default fraction also keeps the set's own part.
        test: Held out of what is left.
        bos_id: Begin-of-text id of the tokenizer.

    Raises:
        UserError: not enough tokens for what is to be held out, or the two sets are the same.
    """
    check_share("val", val)
    check_share("test", test)
    if val_set is not None and (
        train.fingerprint == val_set.fingerprint
        or train.overlaps(val_set)
        or _same_tokens(train.tokens, val_set.tokens)
    ):
        raise UserError(
            f"train and val are the same text: {train.name} and {val_set.name}. Give dataset.val_path "
            "another text, or leave it out: then the last part of the training text is held out "
            "(dataset.val_fraction)",
            code="val-is-train",
        )
    try:
        splits = _splits(train, val_set, val, test)
    except UserError as error:
        raise UserError(f"{train.name}: {error}", code="val-share-impossible") from None
    facts = [train.fingerprint]
    if val_set is not None:
        facts.append(val_set.fingerprint)
    elif _keeps_own_part(train, val):
        facts += [f"{part.start}-{part.stop}" for part in splits.val]
    vocab_size = tokenizer.vocab_size if tokenizer else train.vocab_size
    return Data(
        train=train,
        train_ranges=splits.train,
        val=val_set or train,
        val_ranges=splits.val,
        test_ranges=splits.test,
        vocab_size=vocab_size,
        eot_id=train.eot_id if tokenizer is None or train.eot_id is not None else tokenizer.eot_id,
        tokenizer_name=tokenizer.name if tokenizer else train.tokenizer_name,
        fingerprint=hashlib.sha256(" ".join([*facts, str(vocab_size)]).encode()).hexdigest(),
        bos_id=bos_id if train.documents is None else None,
        tokenizer=tokenizer,
    )


def _splits(train: Tokens, val_set: Tokens | None, val: Share | None, test: Share) -> Splits:
    if val_set is None and not _keeps_own_part(train, val):
        share = schema.Dataset().val_fraction if val is None else val
        return split_set(train.n_tokens, train.documents, share, test, train.sources)
    kept: Sequence[range] = [range(train.n_tokens)]
    held_out: Sequence[range] = [range(val_set.n_tokens)] if val_set else []
    if val_set is None:
        held_out = train.held_out or ()
        kept = other_ranges(train.n_tokens, held_out)
    tested: Sequence[range] = []
    if test:
        kept, tested = hold_out(kept, train.documents, tokens_of(test, train.n_tokens))
    return Splits(tuple(kept), tuple(held_out), tuple(tested))


def _keeps_own_part(train: Tokens, val: Share | None) -> bool:
    """Return whether val is the part that the set was made with."""
    return train.held_out is not None and val in (None, schema.Dataset().val_fraction)


def _same_tokens(one: Values, other: Values) -> bool:
    """Return whether both have equal ids. Reads up to the first block that differs."""
    starts = range(0, len(one), _COMPARED_IDS)
    return len(one) == len(other) and all(
        np.array_equal(one[start : start + _COMPARED_IDS], other[start : start + _COMPARED_IDS])
        for start in starts
    )
