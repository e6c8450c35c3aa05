"""Whether counts are what they should be, without scipy."""

from __future__ import annotations

import numpy as np

UNFAIR = 4.5
"""Standard deviations; all that is drawn here is fixed, so that a verdict is never one of chance."""


def deviation(counts: np.ndarray, probabilities: np.ndarray, lost: int = 1) -> float:
    """Chi-square of counts against their probabilities, as standard deviations of a normal distribution
    (Wilson and Hilferty, 1931). lost: degrees of freedom that are none.
    """
    counts, expected = counts.ravel(), probabilities.ravel() / probabilities.sum() * counts.sum()
    assert expected.min() >= 5, "too few for a chi-square"
    degrees = len(counts) - lost
    per_degree = float(((counts - expected) ** 2 / expected).sum()) / degrees
    spread = 2 / (9 * degrees)
    return float((per_degree ** (1 / 3) - (1 - spread)) / spread**0.5)


def fits(counts: np.ndarray, probabilities: np.ndarray | None = None, lost: int = 1) -> bool:
    """Neither further off than chance goes, nor nearer; probabilities: None: all as likely."""
    return (
        abs(deviation(counts, np.ones(counts.shape) if probabilities is None else probabilities, lost))
        < UNFAIR
    )
