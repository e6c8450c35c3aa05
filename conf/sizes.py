"""What a size is: its layers and heads by its width, and what it is called."""

from __future__ import annotations

import re

from conf.schema import Model

WIDTH_PER_LAYER = 16
"""layers = heads = round(d_model / 16): depth grows with width and every head is 16 wide."""


def by_width(d_model: int) -> int:
    """The layers, and the heads, of this width where the configuration leaves them to the program."""
    return max(1, round(d_model / WIDTH_PER_LAYER))


def size_name(model: Model) -> str:
    """`64d`, whatever option it began as; `64d-2layers-8heads` where they are not the usual ones.

    A name that is no width is the user's own, and stays.
    """
    if not re.fullmatch(r"\d+d", model.name):
        return model.name
    usual = (None, by_width(model.d_model))
    layers = "" if model.n_layers in usual else f"-{model.n_layers}layers"
    heads = "" if model.n_heads in usual else f"-{model.n_heads}heads"
    return f"{model.d_model}d{layers}{heads}"
