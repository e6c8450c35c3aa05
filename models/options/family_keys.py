"""Which keys of `arch` have no meaning for a family of models, and why. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from conf.schema import Arch
from experiment_utils.errors import Problem

FAMILIES = ("transformer", "lstm", "mingru")
"""Families of ours. Another name is a model that the user registered."""
RECURRENT = ("lstm", "mingru")
"""Families whose blocks go from token to token; the others attend."""

_NO_ATTENTION = "it has no attention"
_IN_ORDER = "it reads tokens in their order, and needs no positions"
_NO_FEED_FORWARD = "it has no feed-forward part"
_BY_SIZE = "its settings do not follow the size"

_OF_ATTENTION = dict.fromkeys(
    ("qk_norm", "n_kv_heads", "window", "attention_softcap", "dropout_attention"), _NO_ATTENTION
)
_OF_POSITIONS = dict.fromkeys(
    (
        "rope_theta",
        "rope_fraction",
        "rope_scaling",
        "rope_factor",
        "rope_original_positions",
        "rope_low_frequency",
        "rope_high_frequency",
    ),
    _IN_ORDER,
)
_OF_SIZES = dict.fromkeys(("base_width", "base_layers"), _BY_SIZE)
_OF_FEED_FORWARD = dict.fromkeys(
    ("activation", "ffn_multiplier", "n_experts", "experts_per_token", "balance_loss", "balance_over"),
    _NO_FEED_FORWARD,
)
_PARALLEL = {"parallel_blocks": "it has no attention beside which something could stand"}

_OF_LSTM = dict.fromkeys(("lstm_residual", "lstm_forget_bias", "dropout_recurrent"), "it is no LSTM")

MEANINGLESS: dict[str, dict[str, str]] = {
    "transformer": dict.fromkeys(
        ("lstm_residual", "lstm_forget_bias", "dropout_locked", "dropout_recurrent", "state_reset"),
        "it has no recurrence",
    ),
    "lstm": _OF_ATTENTION | _OF_POSITIONS | _OF_SIZES | _OF_FEED_FORWARD | _PARALLEL,
    "mingru": _OF_ATTENTION | _OF_POSITIONS | _OF_SIZES | _PARALLEL | _OF_LSTM,
}
"""By family the keys that stay at their defaults."""


def is_own(arch: Arch) -> bool:
    """Whether the model is one that the user registered."""
    return arch.family not in FAMILIES


_OF_OWN = ("name", "family", "max_positions")
"""Keys of `arch` that have a meaning for a model of the user's."""


def keys_of_own_model(arch: Arch) -> Iterator[Problem]:
    """Keys of ours that are set and have no effect on a model of the user's."""
    plain = Arch()
    for name in (field.name for field in fields(Arch) if field.name not in _OF_OWN):
        if getattr(arch, name) != getattr(plain, name):
            what = f"has no effect on {arch.family}, a model of your own. Use an option of its own"
            yield Problem(f"arch.{name}", what, "no-effect-on-own-model")


def keys_of_the_family(arch: Arch) -> Iterator[Problem]:
    """What a family does not have is not set."""
    plain = Arch()
    for name, why in MEANINGLESS[arch.family].items():
        value = getattr(arch, name)
        if value != getattr(plain, name):
            said = str(value).lower() if isinstance(value, bool) else f"{value}"
            yield Problem(
                f"arch.{name}",
                f"{said}: {why} (arch.family={arch.family}). Take it away, or use another family",
            )


def parts_of_a_recurrence(arch: Arch) -> Iterator[Problem]:
    """Choices of keys that a recurrence has, which are not for it."""
    if arch.family not in RECURRENT:
        return
    of_family = f"(arch.family={arch.family})"
    if arch.positions not in (Arch().positions, "none"):
        yield Problem("arch.positions", f"{arch.positions}: {_IN_ORDER} {of_family}. Take it away")
    if arch.bias == "qkv":
        yield Problem("arch.bias", f"qkv: {_NO_ATTENTION} {of_family}. Use arch.bias=linear, all or none")
    if arch.init in ("mup", "completep"):
        yield Problem("arch.init", f"{arch.init} is not defined for it {of_family}. Use arch.init=xavier")
    allowed = PLACES_OF_NORMS[arch.family]
    if arch.norm_position not in allowed:
        yield Problem(
            "arch.norm_position",
            f"{arch.norm_position} is not for it {of_family}. Use arch.norm_position={' or '.join(allowed)}",
        )


PLACES_OF_NORMS = {"lstm": ("pre", "post"), "mingru": ("pre",)}


def forget_gate_of_an_lstm(arch: Arch) -> Iterator[Problem]:
    """A first bias is that of a bias."""
    if arch.bias not in ("linear", "all") and arch.lstm_forget_bias != Arch().lstm_forget_bias:
        yield Problem(
            "arch.lstm_forget_bias",
            f"arch.bias={arch.bias} gives gates no biases. Use arch.bias=linear, or take it away",
        )
