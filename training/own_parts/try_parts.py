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
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from conf import Config, parts_table
from conf.composing.check import to_config
from conf.own_parts.call import called
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.load import code_of, load_plugins, options_of, own_part
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError
from models.options.parameter_roles import roles_of
from training.checkpoint.train_state import group_values
from training.own_parts.contracts import check_contracts
from training.own_parts.own_data import write_part
from training.own_parts.own_model import OwnModel, build_run_model
from training.own_parts.part_facts import Facts

BATCH = 2


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Facts as plain values; or `problems`: a list of (where, what, code)."""
    try:
        config = to_config(question["config"])
        places = question.get("places", {})
        load_plugins(config.plugins, {one: Path(place) for one, place in places.items() if place != one})
        if "part" in question:
            part = parts_table.part(question["part"])
            assert part is not None
            write_part(config, part, Path(question["place"]))
            return {}
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
    if own_part(config, "arch_option"):
        _check_activation(config)
    check_contracts(config, vocab_size)
    return facts


def _model_facts(config: Config, vocab_size: int) -> Facts:
    """Facts of the model, on shapes alone if it can be built and run so, else with numbers on the CPU."""
    try:
        return _facts_on("meta", config, vocab_size)
    except UserError:
        return _facts_on("cpu", config, vocab_size)


def _facts_on(device: str, config: Config, vocab_size: int) -> Facts:
    seq_len = config.training.seq_len
    positions = config.arch.max_positions or seq_len
    with torch.device(device), torch.random.fork_rng(devices=[]):
        model = cast("OwnModel", build_run_model(config, vocab_size, positions)).to(device)
    _check_output(config, model, vocab_size, device)
    roles = roles_of(model)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    total, hidden = sum(sizes.values()), sum(sizes[name] for name, role in roles.items() if role == "hidden")
    if not total:
        part = model.part
        raise UserError(Problem(part.place, f"model {part.name} has no parameters", "model-empty"))
    flops, weight = _flops(model, _ids(1, seq_len, device)), model.output_weight
    one, two = (_saved_bytes(model, _ids(batch, seq_len, device)) for batch in (1, 2))
    return Facts(
        parameters=total,
        non_embedding=hidden,
        flops_per_token=6.0 * total if flops is None else flops,
        head_flops_per_token=0.0 if weight is None else 6.0 * weight.numel(),
        saved_bytes=max(0, 2 * one - two),
        saved_bytes_per_window=max(0, two - one),
        has_head=weight is not None,
        is_counted=flops is not None,
    )


def _ids(batch: int, seq_len: int, device: str) -> Tensor:
    return torch.zeros((batch, seq_len), dtype=torch.int64, device=device)


def _check_output(config: Config, model: OwnModel, vocab_size: int, device: str) -> None:
    """Raise a UserError if forward does not return what the contract says."""
    part, seq_len = model.part, config.training.seq_len
    with torch.no_grad():
        found = called(part, model.own, _ids(BATCH, seq_len, device))
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


def _flops(model: OwnModel, ids: Tensor) -> float | None:
    """FLOPs per token of forward and backward; None if they cannot be counted."""
    counter = FlopCounterMode(display=False)
    try:
        with counter, sdpa_kernel(SDPBackend.MATH):
            model(ids).float().sum().backward()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    finally:
        model.zero_grad(set_to_none=True)
    return counter.get_total_flops() / ids.numel() or None


def _saved_bytes(model: OwnModel, ids: Tensor) -> int:
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
        model.hidden(ids)
    return sum(saved.values())


def _state_numbers(config: Config) -> float:
    """Numbers that the optimizer keeps for a parameter, seen on a small model after one step."""
    from training.own_parts.own_optimizer import build_run_optimizer

    layer = nn.Linear(16, 16)
    optimizer = build_run_optimizer(layer, config, "cpu")
    for group in optimizer.param_groups:
        group["lr"] = config.optimizer.lr  # as each step sets it
    for parameter in layer.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    found = own_part(config, "optimizer")
    assert found is not None
    called(found[0], optimizer.step)
    _check_state(found[0], layer, optimizer)
    tensors = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    ]
    count = sum(parameter.numel() for parameter in layer.parameters())
    return sum(tensor.numel() for tensor in tensors if tensor.numel() > 1) / count


def _check_state(part: Part, layer: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise a UserError if checkpoints cannot hold the state of an optimizer."""
    whole: dict[str, Any] = optimizer.state_dict()
    wrong = [f"{key} of state_dict" for key in whole if key not in ("state", "param_groups")]
    known = {*layer.parameters()}
    wrong += [
        f"state of {key!r}" for key in optimizer.state if not isinstance(key, Tensor) or key not in known
    ]
    for values in (*optimizer.state.values(), *group_values(optimizer)):
        wrong += [f"{key} ({type(value).__name__})" for key, value in values.items() if not _is_plain(value)]
    if wrong:
        kept = ", ".join(dict.fromkeys(wrong))
        what = (
            f"optimizer {part.name} keeps what checkpoints cannot hold: {kept}. Keep tensors in "
            "state[parameter], and numbers there or in param_groups"
        )
        raise UserError(Problem(part.place, what, "optimizer-state"))


def _is_plain(value: Any) -> bool:
    """Whether a checkpoint holds it: a tensor, or plain values."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value)) and not any(isinstance(one, Tensor) for one in value)
    return value is None or isinstance(value, Tensor | int | float | str)


def _check_activation(config: Config) -> None:
    """Raise a UserError if an activation does not keep the shape of its tensor."""
    found = own_part(config, "arch_option")
    assert found is not None
    part, registered, _ = found
    given = torch.linspace(-2, 2, 12).view(3, 4).requires_grad_()
    result = called(part, registered.code, given)
    if not isinstance(result, Tensor) or result.shape != given.shape or not result.requires_grad:
        what = f"activation {part.name}: expected a tensor of the shape of its input, with a gradient"
        raise UserError(Problem(part.place, what, "activation-result"))


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
    """Answer questions until standard input ends, each in a fork: no plugin is there for the next one.

    What the user's code prints goes to standard error.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for question in _questions():
        child = os.fork()
        if not child:
            print(json.dumps(answer(question)), file=out, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            what = f"the process that tried them out ended with status {os.waitstatus_to_exitcode(status)}"
            print(json.dumps({"problems": [["plugins", what, "trying-died"]]}), file=out, flush=True)


if __name__ == "__main__":
    main()
