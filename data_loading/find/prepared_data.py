"""From a configuration to tokens ready to read: found, tokenized where needed, verified, split."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from data_loading.tokenizers.document_ends import named_bos_id
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import Values
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

_COMPARED_IDS = 1 << 22


class NotTokenized(UserError):
    """There is a text, but no token file yet. command: what makes one, with ids below vocab_size."""

    code = "not-tokenized"

    def __init__(
        self, text_path: Path | str, text_bytes: int | None, command: str, vocab_size: int | None = None
    ) -> None:
        """text_bytes: None where nothing says."""
        self.text_path, self.text_bytes, self.command = text_path, text_bytes, command
        self.vocab_size = vocab_size
        size = "" if text_bytes is None else f" ({text_bytes / 1e6:,.1f} MB)"
        super().__init__(f"{text_path}{size} is not tokenized yet. Tokenize it once: {command}")


@dataclass(frozen=True)
class Data:
    """Tokens of a run. Ranges are token indices into their set, ascending; where val is a part of train
    they are disjoint ranges of the same set.

    fingerprint: of both sets and the vocabulary; independent of paths. is_counted: whether it is known how
    many tokens there are; of a stream it is not. bos_id: that the tokenizer's files name, for tokens that
    have it before documents and no list of these. tokenizer: where the run has loaded one.
    """

    is_counted: ClassVar[bool] = True
    train: Tokens
    train_ranges: tuple[range, ...]
    val: Tokens
    val_ranges: tuple[range, ...]
    vocab_size: int
    eot_id: int | None
    tokenizer_name: str
    fingerprint: str
    test_ranges: tuple[range, ...] = ()
    bos_id: int | None = None
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the tokenizer: a process that reads windows needs none."""
        return {**self.__dict__, "tokenizer": None}

    def ranges_of(self, split: str) -> tuple[Tokens, tuple[range, ...]]:
        """The set and ranges of `train`, `val` or `test`; test is a part of the set of train.

        Raises:
            UserError: another name, or nothing is held out as test.
        """
        if split == "train":
            return self.train, self.train_ranges
        if split == "val":
            return self.val, self.val_ranges
        if split == "test" and self.test_ranges:
            return self.train, self.test_ranges
        if split == "test":
            raise UserError(
                f"{self.train.name} has no test split: hold one out with dataset.test_fraction=0.05 or "
                "dataset.test_tokens=1M (in Python test=0.05)",
                code="no-test-split",
            )
        raise UserError(f"split {split!r}: choices are train, val, test", code="split-unknown")

    @property
    def parts(self) -> list[Data]:
        """Itself: a mixture has several."""
        return [self]

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that there are."""
        return ("train", "val", "test") if self.test_ranges else ("train", "val")

    def windows(self, split: str, seq_len: int, shift: int = 1) -> int:
        """Windows of `seq_len` inputs and as many labels, none across the end of a range."""
        _, ranges = self.ranges_of(split)
        return sum(windows_in(len(tokens), seq_len, shift=shift) for tokens in ranges)

    def tokens(self, split: str) -> int:
        """Tokens of a split."""
        _, ranges = self.ranges_of(split)
        return sum(map(len, ranges))

    def describe(self) -> dict[str, Any]:
        """Facts for run.json and for people."""
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
            "train_tokens": self.tokens("train"),
            "val_tokens": self.tokens("val"),
            "test_tokens": sum(map(len, self.test_ranges)),
            "tokenizer": self.tokenizer_name,
            "vocab_size": self.vocab_size,
            "fingerprint": self.fingerprint,
            "sets": [found.fingerprint for found in sets],
            **({"document_ends": chosen} if chosen else {}),
        }


def split_data(
    train: Tokens, val_set: Tokens | None, tokenizer: Tokenizer | None, val: Share | None, test: Share = 0
) -> Data:
    """The splits of one set, or train and test of one and another as val. tokenizer: None: as train
    says.

    val: what is held out of a lone set; None: the default share. A set that was made with a held-out part of
    its own keeps it, unless another share than the default is asked for. test: is taken from what remains.

    Raises:
        UserError: not enough tokens for what is to be held out, or the two sets are the same.
    """
    check_share("val", val, may_be_none=False)
    check_share("test", test, may_be_none=True)
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
    parts = [train.fingerprint]
    if val_set is not None:
        parts.append(val_set.fingerprint)
    elif _has_own(train, val):
        parts += [f"{part.start}-{part.stop}" for part in splits.val]
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
        fingerprint=hashlib.sha256(" ".join([*parts, str(vocab_size)]).encode()).hexdigest(),
        bos_id=named_bos_id(tokenizer) if tokenizer and train.documents is None else None,
        tokenizer=tokenizer,
    )


def _splits(train: Tokens, val_set: Tokens | None, val: Share | None, test: Share) -> Splits:
    if val_set is None and not _has_own(train, val):
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


def _has_own(train: Tokens, val: Share | None) -> bool:
    """Whether the part held out is the one that the set was made with."""
    return train.held_out is not None and val in (None, schema.Dataset().val_fraction)


def _same_tokens(one: Values, other: Values) -> bool:
    """Read only as far as they agree, and only where they are equally many."""
    starts = range(0, len(one), _COMPARED_IDS)
    return len(one) == len(other) and all(
        np.array_equal(one[start : start + _COMPARED_IDS], other[start : start + _COMPARED_IDS])
        for start in starts
    )
