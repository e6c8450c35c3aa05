"""Run the user's own parts once, on shapes alone: check their contracts and count. `facts` asks.

As a process it reads one JSON question a line from standard input and writes one answer a line.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from conf import Config
from conf.composing.check import to_config
from conf.own_parts.call import called
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.load import code_of, load_plugins, options_of, own_part
from experiment_utils.errors import Problem, UserError
from models.loss_model import LossModel
from models.options.parameter_roles import roles_of
from training.own_parts.contracts import check_contracts
from training.own_parts.facts import Facts
from training.own_parts.own_model import OwnModel, build_run_model

BATCH = 2


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Facts as plain values; or `problems`: a list of (where, what, code)."""
    try:
        config = to_config(question["config"])
        load_plugins(config.plugins)
        return dataclasses.asdict(_facts(config, question["vocab_size"]))
    except UserError as error:
        return {"problems": [[one.where, one.what, one.code] for one in error.problems]}


def _facts(config: Config, vocab_size: int) -> Facts:
    for part in parts_in_use(config):
        code_of(part.kind, part.name)
        options_of(config, part)
    facts = _model_facts(config, vocab_size) if own_part(config, "model") else Facts()
    if own_part(config, "optimizer"):
        facts = dataclasses.replace(facts, state_numbers=_state_numbers(config))
    if own_part(config, "schedule"):
        _check_schedule(config)
    check_contracts(config, vocab_size)
    return facts


def _model_facts(config: Config, vocab_size: int) -> Facts:
    found = own_part(config, "model")
    assert found is not None
    part = found[0]
    seq_len = config.training.seq_len
    positions = config.arch.max_positions or seq_len
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = cast("OwnModel", build_run_model(config, vocab_size, positions))
    model.to("meta")
    _check_output(config, model, vocab_size)
    roles = roles_of(model)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    total, hidden = sum(sizes.values()), sum(sizes[name] for name, role in roles.items() if role == "hidden")
    if not total:
        raise UserError(Problem(part.place, f"model {part.name} has no parameters", "model-empty"))
    flops, head = _flops(model, seq_len), 0.0
    weight = model.output_weight
    if weight is not None:
        head = 6.0 * weight.numel()
    one, two = _saved_bytes(model, 1, seq_len), _saved_bytes(model, 2, seq_len)
    return Facts(
        parameters=total,
        non_embedding=hidden,
        flops_per_token=6.0 * total if flops is None else flops,
        head_flops_per_token=head,
        saved_bytes=max(0, 2 * one - two),
        saved_bytes_per_window=max(0, two - one),
        has_head=weight is not None,
        is_counted=flops is not None,
    )


def _ids(batch: int, seq_len: int) -> Tensor:
    return torch.zeros((batch, seq_len), dtype=torch.int64, device="meta")


def _check_output(config: Config, model: OwnModel, vocab_size: int) -> None:
    """Raise a UserError if forward does not return what the contract says."""
    part, seq_len = model.part, config.training.seq_len
    with torch.no_grad():
        found = called(part, model.own, _ids(BATCH, seq_len))
    width = config.model.d_model if model.output_weight is not None else vocab_size
    last = "d_model, as it has a head" if model.output_weight is not None else "vocab_size, as it has no head"
    if not isinstance(found, Tensor) or found.shape != (BATCH, seq_len, width):
        is_now = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        what = (
            f"model {part.name}: forward of ids ({BATCH}, {seq_len}) returned {is_now}; "
            f"expected ({BATCH}, {seq_len}, {width}): batch, seq, {last}"
        )
        raise UserError(Problem(part.place, what, "model-output"))
    if model.output_weight is not None and model.output_weight.shape[0] != vocab_size:
        outputs = model.output_weight.shape[0]
        what = f"model {part.name}: head has {outputs} outputs; expected {vocab_size} (vocab_size)"
        raise UserError(Problem(part.place, what, "model-head"))


def _flops(model: OwnModel, seq_len: int) -> float | None:
    """FLOPs per token of forward and backward; None if they cannot be counted on shapes."""
    counter = FlopCounterMode(display=False)
    try:
        with counter, sdpa_kernel(SDPBackend.MATH):
            _loss(model, 1, seq_len).backward()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    finally:
        model.zero_grad(set_to_none=True)
    return counter.get_total_flops() / seq_len or None


def _loss(model: OwnModel, batch: int, seq_len: int) -> Tensor:
    ids = _ids(batch, seq_len)
    if model.output_weight is not None:  # the head's part is not that of a chunked loss
        return model.logits(model.hidden(ids)).float().sum()
    return LossModel(model)(ids, ids, None, batch * seq_len)  # type: ignore[arg-type]


def _saved_bytes(model: OwnModel, batch: int, seq_len: int) -> int:
    """Bytes of the tensors that autograd saves in forward, other than parameters."""
    own = {id(one) for one in model.parameters()}
    saved: dict[tuple[int, ...], int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if id(tensor) not in own and not isinstance(tensor, nn.Parameter):
            saved[id(tensor.untyped_storage()), tensor.untyped_storage().nbytes()] = (
                tensor.untyped_storage().nbytes()
            )
            kept.append(tensor)
        return tensor

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.hidden(_ids(batch, seq_len))
    return sum(saved.values())


def _state_numbers(config: Config) -> float:
    """Numbers that the optimizer keeps for a parameter, seen on a small model after one step."""
    from training.own_parts.own_optimizer import build_run_optimizer

    layer = nn.Linear(16, 16)
    optimizer = build_run_optimizer(layer, config, "cpu")
    for parameter in layer.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    found = own_part(config, "optimizer")
    assert found is not None
    called(found[0], optimizer.step)
    tensors = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    ]
    count = sum(parameter.numel() for parameter in layer.parameters())
    return sum(tensor.numel() for tensor in tensors if tensor.numel() > 1) / count


def _check_schedule(config: Config) -> None:
    from training.step.schedules import own_rate

    found = own_part(config, "schedule")
    assert found is not None
    part = found[0]
    rate = own_rate(config)
    for step in (0, 1, 50, 99):
        share = called(part, rate, step, 100, 10)
        if not isinstance(share, int | float) or not math.isfinite(share) or share < 0:
            what = (
                f"schedule {part.name}: returned {share!r} at step {step} of 100; expected a number from 0 on"
            )
            raise UserError(Problem(part.place, what, "schedule-value"))


def _questions() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    """Answer questions until standard input ends. What the user's code prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for question in _questions():
        print(json.dumps(answer(question)), file=out, flush=True)


if __name__ == "__main__":
    main()
