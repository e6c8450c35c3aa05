from __future__ import annotations

from typing import Any

import pytest

from conf.schema import Arch
from models.options.option_conflicts import combination_problems


def test_the_default_has_no_problem() -> None:
    assert combination_problems(Arch()) == []


@pytest.mark.parametrize(
    ("options", "where", "says"),
    [
        ({"positions": "alibi", "rope_fraction": 0.5}, "arch.rope_fraction", "rotates nothing"),
        ({"positions": "none", "rope_scaling": "ntk"}, "arch.rope_scaling", "arch.positions=rotary"),
        ({"rope_factor": 2.0}, "arch.rope_factor", "arch.rope_scaling=linear"),
        ({"rope_scaling": "linear"}, "arch.rope_scaling", "arch.rope_factor="),
        (
            {"rope_scaling": "llama3", "rope_factor": 2.0, "rope_low_frequency": 4.0},
            "arch.rope_low_frequency",
            "Llama 3 has 1 and 4",
        ),
        ({"norm": "none", "norm_position": "post"}, "arch.norm_position", "arch.norm_position=pre"),
        ({"parallel_blocks": True, "norm_position": "post"}, "arch.parallel_blocks", "one norm before both"),
        ({"n_experts": 4, "bias": "linear"}, "arch.bias", "arch.bias=qkv"),
        ({"n_experts": 4, "experts_per_token": 5}, "arch.experts_per_token", "at most 4"),
        ({"experts_per_token": 1}, "arch.experts_per_token", "arch.n_experts="),
        ({"base_width": 32}, "arch.base_width", "arch.init=mup or completep"),
        ({"init": "mup", "base_layers": 3}, "arch.base_layers", "arch.init=completep"),
        ({"init": "mup", "positions": "sinusoidal"}, "arch.init", "sqrt(width)"),
        ({"init": "completep", "n_experts": 4}, "arch.init", "no rule for a router"),
        ({"init": "completep", "norm_position": "sandwich"}, "arch.init", "arch.init=mup"),
        ({"family": "lstm", "positions": "alibi"}, "arch.positions", "reads tokens in their order"),
        ({"family": "lstm", "window": 8}, "arch.window", "no attention (arch.family=lstm)"),
        ({"family": "lstm", "rope_scaling": "linear"}, "arch.rope_scaling", "needs no positions"),
        ({"family": "lstm", "activation": "gelu"}, "arch.activation", "no feed-forward part"),
        ({"family": "lstm", "parallel_blocks": True}, "arch.parallel_blocks", "true: it has no attention"),
        ({"family": "lstm", "bias": "qkv"}, "arch.bias", "arch.bias=linear"),
        ({"family": "lstm", "init": "mup"}, "arch.init", "not defined"),
        ({"family": "lstm", "norm_position": "sandwich"}, "arch.norm_position", "pre or post"),
        ({"family": "lstm", "lstm_forget_bias": 0.0}, "arch.lstm_forget_bias", "no biases"),
        ({"family": "mingru", "dropout_recurrent": 0.1}, "arch.dropout_recurrent", "it is no LSTM"),
        ({"family": "mingru", "norm_position": "post"}, "arch.norm_position", "arch.norm_position=pre"),
        ({"family": "mingru", "dropout_attention": 0.1}, "arch.dropout_attention", "no attention"),
        ({"lstm_residual": False}, "arch.lstm_residual", "false: it has no recurrence"),
        ({"dropout_recurrent": 0.1}, "arch.dropout_recurrent", "no recurrence (arch.family=transformer)"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_does(
    options: dict[str, Any], where: str, says: str
) -> None:
    (problem,) = combination_problems(Arch(**options))
    assert problem.where == where
    assert says in problem.what
