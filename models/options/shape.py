"""The sizes of a model that follow from its configuration. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conf.between_keys.rules import nearest_divisors
from conf.schema import Arch, Model
from conf.sizes import by_width
from experiment_utils.errors import Problem, UserError
from models.options.family_keys import RECURRENT, is_own, keys_of_own_model
from models.options.option_conflicts import combination_problems


@dataclass(frozen=True)
class Shape:
    """d_model = n_heads * head_dim; ffn_hidden is the width inside the feed-forward part, or in one expert.

    n_kv_heads: heads of keys and values, each shared by n_heads / n_kv_heads of queries. rotary_dim: of a
    head, the width that rotary positions turn.
    """

    d_model: int
    n_layers: int
    n_heads: int
    head_dim: int
    ffn_hidden: int
    n_kv_heads: int
    rotary_dim: int

    @property
    def kv_dim(self) -> int:
        """Width of all keys, or of all values."""
        return self.n_kv_heads * self.head_dim


def resolve_shape(model: Model, arch: Arch) -> Shape:
    """Settle what the configuration leaves to the program.

    Raises:
        UserError: the sizes do not fit together; carries everything `shape_problems` finds.
    """
    problems = shape_problems(model, arch)
    if problems:
        raise UserError(*problems)
    n_heads = _n_heads(model)
    head_dim = max(1, model.d_model // n_heads)
    return Shape(
        d_model=model.d_model,
        n_layers=model.n_layers or by_width(model.d_model),
        n_heads=n_heads,
        head_dim=head_dim,
        ffn_hidden=max(1, round(arch.ffn_multiplier * model.d_model)),
        n_kv_heads=arch.n_kv_heads or n_heads,
        rotary_dim=int(head_dim * arch.rope_fraction),
    )


def positions_of(arch: Arch) -> str:
    """The kind of positions: a recurrence has none, whatever the default of attention is."""
    return "none" if arch.family in RECURRENT else arch.positions


def final_norm(arch: Arch) -> str:
    """The kind of norm after the last block: behind post-norm blocks, which end with one, none."""
    if arch.final_norm != "same":
        return arch.final_norm
    return "none" if arch.norm_position == "post" else arch.norm


def shape_problems(model: Model, arch: Arch) -> list[Problem]:
    """What is wrong with the sizes and with the options beside each other, and the nearest that serve."""
    n_heads = _n_heads(model)
    if is_own(arch):
        return [*keys_of_own_model(arch)]
    if arch.family in RECURRENT:
        return [*_heads_of_a_recurrence(model, arch), *combination_problems(arch)]
    if model.d_model % n_heads:
        nearest = ", ".join(map(str, nearest_divisors(model.d_model, n_heads)))
        found = f"a width of {model.d_model} cannot be divided among {n_heads} heads"
        return [Problem("model.n_heads", f"{found}; nearest numbers that divide it: {nearest}")]
    return [*_head_problems(model, arch, n_heads), *combination_problems(arch)]


def _heads_of_a_recurrence(model: Model, arch: Arch) -> Iterator[Problem]:
    if model.n_heads not in (None, by_width(model.d_model)):  # the usual ones stand in every resolved config
        yield Problem(
            "model.n_heads", f"{model.n_heads}: there are no heads (arch.family={arch.family}). Take it away"
        )


def _head_problems(model: Model, arch: Arch, n_heads: int) -> Iterator[Problem]:
    head_dim = model.d_model // n_heads
    turned = int(head_dim * arch.rope_fraction)
    if arch.positions == "rotary" and head_dim % 2:
        yield Problem(
            "model.n_heads",
            f"rotary positions rotate pairs and need heads of even width, but {model.d_model} / "
            f"{n_heads} heads is {head_dim}. Use another number of heads, or arch.positions=learned",
        )
    elif arch.positions == "rotary" and (turned < 2 or turned % 2):
        even = [width for width in (turned - turned % 2, turned + turned % 2) if 2 <= width <= head_dim]
        nearest = " or ".join(f"{width / head_dim:g}" for width in sorted({*even} or {2}))
        yield Problem(
            "arch.rope_fraction",
            f"rotary positions rotate pairs, but {arch.rope_fraction:g} of a head of {head_dim} is {turned}. "
            f"Nearest: {nearest}",
        )
    if arch.n_kv_heads is not None and n_heads % arch.n_kv_heads:
        nearest = ", ".join(map(str, nearest_divisors(n_heads, arch.n_kv_heads)))
        yield Problem(
            "arch.n_kv_heads",
            f"{n_heads} heads cannot share {arch.n_kv_heads} of keys and values evenly; nearest numbers that "
            f"divide them: {nearest}",
        )


def _n_heads(model: Model) -> int:
    return model.n_heads or by_width(model.d_model)
