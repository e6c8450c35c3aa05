"""The sizes of a model that follow from its configuration. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from conf import Problem, UserError
from conf.schema import Arch, Model
from conf.sizes import by_width


@dataclass(frozen=True)
class Shape:
    """d_model = n_heads * head_dim; ffn_hidden is the width inside the feed-forward part."""

    d_model: int
    n_layers: int
    n_heads: int
    head_dim: int
    ffn_hidden: int


def resolve_shape(model: Model, arch: Arch) -> Shape:
    """Settle what the configuration leaves to the program.

    Raises:
        UserError: the sizes do not fit together; carries everything `shape_problems` finds.
    """
    problems = shape_problems(model, arch)
    if problems:
        raise UserError(*problems)
    n_heads = _n_heads(model)
    return Shape(
        d_model=model.d_model,
        n_layers=model.n_layers or by_width(model.d_model),
        n_heads=n_heads,
        head_dim=model.d_model // n_heads,
        ffn_hidden=max(1, round(arch.ffn_multiplier * model.d_model)),
    )


def shape_problems(model: Model, arch: Arch) -> list[Problem]:
    """What is wrong with the sizes, and the nearest ones that serve."""
    n_heads = _n_heads(model)
    if model.d_model % n_heads:
        usable = [n for n in range(1, model.d_model + 1) if model.d_model % n == 0]
        nearest = sorted(sorted(usable, key=lambda n: abs(n - n_heads))[:3])
        return [
            Problem(
                "model.n_heads",
                f"a width of {model.d_model} cannot be divided among {n_heads} heads; "
                f"nearest numbers that divide it: {', '.join(map(str, nearest))}",
            )
        ]
    head_dim = model.d_model // n_heads
    if arch.positions == "rotary" and head_dim % 2:
        return [
            Problem(
                "model.n_heads",
                f"rotary positions rotate pairs and need heads of even width, but {model.d_model} / "
                f"{n_heads} heads is {head_dim}. Use another number of heads, or arch.positions=learned",
            )
        ]
    return []


def _n_heads(model: Model) -> int:
    return model.n_heads or by_width(model.d_model)
