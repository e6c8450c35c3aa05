"""`synthetic:KIND[:VOCAB[:TOKENS[:SEED]]]`: names of synthetic tokens."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from data_loading.synthetic.copied import Copy
from data_loading.synthetic.law import Law
from data_loading.synthetic.markov import Markov
from data_loading.synthetic.uniform import Uniform
from data_loading.synthetic.zipf import Zipf
from experiment_utils.errors import UserError
from experiment_utils.quantities import parse_count

SCHEME = "synthetic"
KINDS: dict[str, type[Law]] = {law.name: law for law in (Uniform, Zipf, Markov, Copy)}

DEFAULT_VOCABULARY = 256
DEFAULT_TOKENS = 10**9
MOST_IDS = 1 << 20
"""A chain has a table of 128 bytes for each id."""
MOST_TOKENS = 1 << 48
"""Largest number of windows of which an order can be computed."""
_LARGEST_SEED = 2**63 - 1
_FORM = "expected synthetic:KIND[:VOCAB[:TOKENS[:SEED]]], such as synthetic:markov:64:100M:0"


@dataclass(frozen=True)
class SyntheticUri:
    """Parts of a URI, which determine all tokens."""

    kind: str
    vocab_size: int
    tokens: int
    seed: int

    def __str__(self) -> str:
        """Return all parts, with the number of tokens as short as it can be written exactly."""
        units = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3), ("", 1))
        unit, scale = next((unit, scale) for unit, scale in units if self.tokens % scale == 0)
        return f"{SCHEME}:{self.kind}:{self.vocab_size}:{self.tokens // scale}{unit}:{self.seed}"

    @property
    def law(self) -> Law:
        """Law of the tokens."""
        return KINDS[self.kind](self.vocab_size, self.seed)


def parse_synthetic(uri: str, vocab_size: int | None = None) -> SyntheticUri:
    """Return the parts of a URI; those that are left out or empty have their defaults.

    vocab_size: of the tokenizer of the run: default and largest value of VOCAB; None: the default is 256.

    Raises:
        UserError: it is not of that form, a part is out of bounds, or the tokenizer has fewer ids.
    """
    scheme, *parts = uri.split(":")
    if scheme != SCHEME or not 1 <= len(parts) <= 4:
        raise UserError(f"{uri}: {_FORM}", code="synthetic-uri-invalid")
    kind, vocabulary, tokens, seed = (*parts, "", "", "")[:4]
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(
            f"{uri}: no kind {kind!r}{meant}; choices are {', '.join(KINDS)}", code="synthetic-kind-unknown"
        )
    default = min(vocab_size or DEFAULT_VOCABULARY, MOST_IDS)
    found = SyntheticUri(
        kind,
        _count(uri, "VOCAB", vocabulary, default, 2, MOST_IDS),
        _count(uri, "TOKENS", tokens, DEFAULT_TOKENS, 2, MOST_TOKENS),
        _count(uri, "SEED", seed, 0, 0, _LARGEST_SEED),
    )
    if vocab_size is not None and found.vocab_size > vocab_size:
        raise UserError(
            f"{found} has ids below {found.vocab_size:,}, the tokenizer of the run has {vocab_size:,}. Use "
            f"tokenizer=ids, whose ids are those of the set, or a vocabulary of at most {vocab_size:,}: "
            f"synthetic:{kind}:{vocab_size}",
            code="synthetic-vocabulary-too-large",
        )
    return found


def _count(uri: str, name: str, text: str, default: int, least: int, most: int) -> int:
    if not text:
        return default
    try:
        value = parse_count(text)
    except ValueError as error:
        raise UserError(
            f"{uri}: {name}: {error}. {_FORM[0].upper()}{_FORM[1:]}", code="synthetic-uri-invalid"
        ) from None
    if not least <= value <= most:
        raise UserError(
            f"{uri}: {name} {text}: expected {least:,} to {most:,}", code="synthetic-number-outside"
        )
    return value
