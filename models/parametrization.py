"""How the settings of an optimizer are scaled by parameter, so that they hold at every size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scales:
    """Factors on the settings of the optimizer for one parameter."""

    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


STANDARD = Scales()
"""The same settings for all parameters."""
