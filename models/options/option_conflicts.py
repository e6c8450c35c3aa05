"""Options of a model that do not go together, each with the reason and what does. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conf.schema import Arch
from experiment_utils.errors import Problem
from models.options.family_keys import forget_gate_of_an_lstm, keys_of_the_family, parts_of_a_recurrence

BY_SIZE = ("mup", "completep")
"""Values of arch.init that scale settings by the size of the model."""


def rotary_settings(arch: Arch) -> Iterator[Problem]:
    """What is said of rotary positions is said where there are some, and means something."""
    plain = Arch()
    if arch.positions != "rotary":
        for name in ("rope_fraction", "rope_scaling"):
            if getattr(arch, name) != getattr(plain, name):
                yield Problem(
                    f"arch.{name}", f"arch.positions={arch.positions} rotates nothing. Take it away, or "
                    "use arch.positions=rotary",
                )  # fmt: skip
        return
    if arch.rope_scaling == "none" and arch.rope_factor != 1.0:
        yield Problem(
            "arch.rope_factor", "nothing is scaled by it. Add arch.rope_scaling=linear, ntk or llama3"
        )
    if arch.rope_scaling != "none" and arch.rope_factor == 1.0:
        yield Problem(
            "arch.rope_scaling", f"{arch.rope_scaling} by a factor of 1 does nothing. Give arch.rope_factor="
        )
    if arch.rope_scaling == "llama3" and arch.rope_low_frequency >= arch.rope_high_frequency:
        yield Problem(
            "arch.rope_low_frequency",
            f"{arch.rope_low_frequency:g}: expected less than arch.rope_high_frequency="
            f"{arch.rope_high_frequency:g}; Llama 3 has 1 and 4",
        )


def norms_of_a_place(arch: Arch) -> Iterator[Problem]:
    """A place for norms is that of some; blocks side by side have one norm before both."""
    if arch.norm == "none" and arch.norm_position != "pre":
        yield Problem(
            "arch.norm_position",
            f"{arch.norm_position} says where norms stand, and arch.norm=none has none. Use "
            "arch.norm_position=pre",
        )
    if arch.parallel_blocks and arch.norm_position != "pre":
        yield Problem(
            "arch.parallel_blocks",
            f"side by side, attention and feed-forward read one norm before both, not "
            f"arch.norm_position={arch.norm_position}. Use arch.norm_position=pre",
        )


def parts_with_biases(arch: Arch) -> Iterator[Problem]:
    """The matrices of experts have no biases, as in Mixtral."""
    if arch.n_experts is not None and arch.bias in ("linear", "all"):
        yield Problem(
            "arch.bias", f"{arch.bias}: experts (arch.n_experts) have no biases. Use arch.bias=qkv or none"
        )


def experts_of_a_token(arch: Arch) -> Iterator[Problem]:
    """A token takes no more experts than there are, and what is said of them is said where there are some."""
    if arch.n_experts is None:
        if arch.experts_per_token != Arch().experts_per_token:
            yield Problem(
                "arch.experts_per_token", "there are no experts. Add arch.n_experts=, or take it away"
            )
    elif arch.experts_per_token > arch.n_experts:
        yield Problem(
            "arch.experts_per_token",
            f"{arch.experts_per_token} of {arch.n_experts} experts. Use at most {arch.n_experts}",
        )


def scaled_by_size(arch: Arch) -> Iterator[Problem]:
    """muP and CompleteP are used with what they are derived for."""
    if arch.init not in BY_SIZE:
        plain = Arch()
        for name in ("base_width", "base_layers"):
            if getattr(arch, name) != getattr(plain, name):
                yield Problem(
                    f"arch.{name}", f"arch.init={arch.init} does not follow the size. Take it away, or use "
                    "arch.init=mup or completep",
                )  # fmt: skip
        return
    if arch.init == "mup" and arch.base_layers is not None:
        yield Problem(
            "arch.base_layers", "mup follows the width alone. Take it away, or use arch.init=completep"
        )
    if arch.positions == "sinusoidal":
        yield Problem(
            "arch.init",
            f"{arch.init} keeps embeddings as large at every width, and arch.positions=sinusoidal multiplies "
            "them by sqrt(width). Use arch.positions=rotary, learned, alibi or none",
        )
    if arch.n_experts is not None:
        yield Problem(
            "arch.init", f"{arch.init} has no rule for a router of experts. Use arch.init=default, or no "
            "arch.n_experts",
        )  # fmt: skip
    if arch.init == "completep" and arch.norm_position != "pre":
        yield Problem(
            "arch.init",
            f"completep scales branches behind a norm before them, not arch.norm_position="
            f"{arch.norm_position}. Use arch.norm_position=pre, or arch.init=mup",
        )


COMBINATIONS: dict[str, tuple[Callable[[Arch], Iterator[Problem]], ...]] = {
    "transformer": (
        keys_of_the_family,
        rotary_settings,
        norms_of_a_place,
        parts_with_biases,
        experts_of_a_token,
        scaled_by_size,
    ),
    "lstm": (keys_of_the_family, parts_of_a_recurrence, norms_of_a_place, forget_gate_of_an_lstm),
    "mingru": (keys_of_the_family, parts_of_a_recurrence, parts_with_biases, experts_of_a_token),
}
"""What is looked at, by family."""


def combination_problems(arch: Arch) -> list[Problem]:
    """All that is wrong with the options beside each other."""
    return [problem for find in COMBINATIONS[arch.family] for problem in find(arch)]
