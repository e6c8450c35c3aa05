"""Weights of a mixture as people write them, and as the whole numbers that a schedule counts with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from experiment_utils.quantities import parse_count

LARGEST_DENOMINATOR = 1_000_000
"""Weights that have no common denominator up to this are rounded to millionths."""
ROUNDING = Fraction(1, 1_000_000)
"""The sum of weights may be off by so much: 0.333333 three times."""

_SEPARATOR = re.compile(r"\s*\+\s*|\s+")
Weight = str | float | Fraction


@dataclass(frozen=True)
class Milestone:
    """Other weights from a number of tokens on."""

    tokens: int
    weights: tuple[Fraction, ...]

    def __str__(self) -> str:
        return f"{'+'.join(map(weight_text, self.weights))}@{self.tokens}"


def parse_weight(given: Weight) -> Fraction:
    """0.7, 7e-1, 1/3: exactly the number that was typed. Raises ValueError."""
    try:
        return Fraction(str(given).replace(" ", ""))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"expected a number such as 0.7 or 1/3, got {given!r}") from error


def parse_weights(given: Sequence[Weight], *, zero: bool = False) -> tuple[Fraction, ...]:
    """Weights whose sum is 1. zero: one of them may be 0.

    Raises:
        ValueError: one that is no number, negative, or 0; or another sum, with the weights that were meant.
    """
    weights = [parse_weight(one) for one in given]
    for text, weight in zip(given, weights, strict=True):
        if weight < 0 or (weight == 0 and not zero):
            expected = "at least 0" if zero else "more than 0" + "; leave the source out" * (weight == 0)
            raise ValueError(f"weight {text}: expected {expected}")
    total = sum(weights, Fraction(0))
    if total == 0:
        raise ValueError("expected a weight above 0")
    if abs(total - 1) > ROUNDING:
        raise ValueError(
            f"the weights sum to {decimal(total)}, expected 1. As shares: {shown(normalized(weights))}"
        )
    return normalized(weights)


def parse_milestone(text: str) -> Milestone:
    """`0.2+0.8@100M`: weights, then the tokens from which on they hold. Raises ValueError."""
    weights, at, tokens = text.rpartition("@")
    if not at:
        raise ValueError(f"expected WEIGHT+WEIGHT@TOKENS such as 0.2+0.8@100M, got `{text}`")
    parts = [part for part in _SEPARATOR.split(weights.strip()) if part]
    return Milestone(parse_count(tokens), parse_weights(parts, zero=True))


def normalized(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Their sum made 1; in millionths where their common denominator is larger."""
    total = sum(weights, Fraction(0))
    exact = tuple(weight / total for weight in weights)
    if math.lcm(*(weight.denominator for weight in exact)) <= LARGEST_DENOMINATOR:
        return exact
    counts = [math.floor(weight * LARGEST_DENOMINATOR) for weight in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i] * LARGEST_DENOMINATOR)
    for index in by_rest[: LARGEST_DENOMINATOR - sum(counts)]:
        counts[index] += 1
    gone = [weight for weight, count in zip(exact, counts, strict=True) if weight and not count]
    if gone:
        raise ValueError(f"a weight of {float(gone[0]):.1g} is less than a millionth of the mixture")
    return tuple(Fraction(count, LARGEST_DENOMINATOR) for count in counts)


def integer_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """The smallest whole numbers in these proportions."""
    scale = math.lcm(*(weight.denominator for weight in weights))
    counts = [int(weight * scale) for weight in weights]
    common = math.gcd(*counts)
    return tuple(count // common for count in counts)


def weight_text(weight: Fraction) -> str:
    """As one would type it: 0.7, or 1/3 where no decimals end."""
    return decimal(weight) if not _odd_part(weight.denominator) else str(weight)


def shown(weights: Sequence[Fraction]) -> str:
    """[0.7,0.3]"""
    return f"[{','.join(map(weight_text, weights))}]"


def decimal(number: Fraction) -> str:
    """Without an exponent, and without digits that say nothing; at most 9 of them."""
    value = round(Decimal(number.numerator) / Decimal(number.denominator), 9)
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _odd_part(denominator: int) -> bool:
    """Whether a prime other than 2 and 5 divides it."""
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator > 1
