"""Convert between a run in memory and a checkpoint: everything that decides the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from experiment_utils.errors import UserError
from training import optimizers
from training.checkpoint.checkpoints import Checkpoint
from training.distributed.parallel import like, whole
from training.step.recurrent_state import states_in_checkpoint

if TYPE_CHECKING:
    from data_loading import Loader, StreamLoader
    from models import LanguageModel
    from training.distributed.loader import PartOfStream
    from training.own_parts.watchers import Watchers
    from training.run.loop import Run
    from training.step.recurrent_state import RowStates
    from training.step.weight_average import Average

_TRAINED = "trained."


def capture(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream,
    *,
    average: Average | None = None,
    row_states: RowStates | None = None,
    watchers: Watchers | None = None,
    keep: bool = True,
    **counters: Any,
) -> Checkpoint:
    """State of a run at a step boundary.

    Optimizer state is stored flat: tensors as `optimizer.PARAMETER.KEY`, other values in `state`.
    Random-number states are tensors of bytes. With an average, `weights` has the averaged weights, and the
    trained ones are stored as `trained.NAME` among the other tensors. If ranks hold parts of the tensors, all
    of them call this, and those with `keep` get complete ones: a checkpoint does not depend on the number of
    ranks.
    """
    training = {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        training["rng.cuda"] = torch.cuda.get_rng_state()
    scalars: dict[str, Any] = {}
    # One order on all ranks: a checkpoint may have restored another one.
    for index, entries in sorted(optimizer.state_dict()["state"].items()):
        for key, value in sorted(entries.items()):
            name = f"optimizer.{index}.{key}"
            if isinstance(value, torch.Tensor):
                training[name] = whole(value.detach(), keep=keep).contiguous()
            else:
                scalars[name] = value
    weights = {
        name: whole(tensor.detach(), keep=keep).contiguous() for name, tensor in model.state_dict().items()
    }
    training |= states_in_checkpoint(row_states)
    own_tensors, own_values = watchers.state() if watchers is not None else ({}, {})
    training |= own_tensors
    if average is not None:
        training |= {f"{_TRAINED}{name}": weights[name] for name in average.weights()}
        weights |= {
            name: whole(tensor.detach(), keep=keep).contiguous() for name, tensor in average.weights().items()
        }
    state = {**counters, **own_values, "data": loader.state_dict(), "optimizer": scalars}
    if is_of_user(optimizer):
        state["optimizer_groups"] = group_values(optimizer)
    return Checkpoint(weights, training, state)


def resume(
    run: Run,
    checkpoint: Checkpoint,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream,
) -> None:
    """Resume a run from a checkpoint: tensors, random numbers, data position, counters and guards.

    Raises:
        UserError: the checkpoint has other parameters, or comes from other data.
    """
    restore(checkpoint, model, optimizer, loader, run.average)
    if run.row_states is not None:
        run.row_states.load(checkpoint)
    run.step = run.saved_step = checkpoint.state["step"]
    run.train_seconds = checkpoint.state["train_seconds"]
    run.best, run.val_loss = checkpoint.state["best"], checkpoint.state["val_loss"]
    if run.guard is not None and "guard" in checkpoint.state:
        run.guard.load(checkpoint.state["guard"])
    if run.scaler is not None and "loss_scale" in checkpoint.state:
        run.scaler.load_state_dict(checkpoint.state["loss_scale"])
    if run.watchers is not None:
        run.watchers.load(checkpoint)


def restore(
    checkpoint: Checkpoint,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream | None,
    average: Average | None = None,
) -> None:
    """Load model, optimizer, random numbers and data position from a checkpoint.

    loader: None leaves the data position unchanged.

    Raises:
        UserError: the checkpoint has other parameters (names, shapes), or comes from other data.
    """
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in checkpoint.weights.items()}
    if own != saved:
        differing = sorted({name for name, _ in own.items() ^ saved.items()})
        raise UserError(
            "the checkpoint is of another model; differing parameters: "
            + ", ".join(f"{name} {saved.get(name)} -> {own.get(name)}" for name in differing)
        )
    now = model.state_dict()
    trained = trained_weights(checkpoint)
    model.load_state_dict({name: like(full, now[name]) for name, full in trained.items()})
    if average is not None:
        average.load(checkpoint.weights)
    restore_optimizer(checkpoint, optimizer)
    torch.set_rng_state(checkpoint.training["rng.cpu"])
    if "rng.cuda" in checkpoint.training and torch.cuda.is_available():
        torch.cuda.set_rng_state(checkpoint.training["rng.cuda"])
    if loader is not None:
        loader.load_state_dict(checkpoint.state["data"])


def trained_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Weights that the next step changes; with an average, evaluations use other ones."""
    return {
        name: checkpoint.training.get(f"{_TRAINED}{name}", full) for name, full in checkpoint.weights.items()
    }


def restore_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Load the moments of an optimizer from a checkpoint."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        index: {key: _as_its_parameter(value, parameters[index]) for key, value in entries.items()}
        for index, entries in _nested(checkpoint).items()
    }
    groups = optimizer.state_dict()["param_groups"]
    if not is_of_user(optimizer):
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
        return
    torch.optim.Optimizer.load_state_dict(optimizer, {"state": moments, "param_groups": groups})
    for index, entries in moments.items():  # as they were: torch makes them of the parameter's type
        own = optimizer.state[parameters[index]]
        for key, value in entries.items():
            own[key] = value.to(parameters[index].device) if isinstance(value, torch.Tensor) else value
    for group, values in zip(
        optimizer.param_groups, checkpoint.state.get("optimizer_groups", ()), strict=False
    ):
        group.update(values)


def is_of_user(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is of the user's code or another package: its groups can have state of their own."""
    return not type(optimizer).__module__.startswith(("torch.optim", optimizers.__name__))


def group_values(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Values of each parameter group but its parameters and what each step sets."""
    left_out = ("params", "lr", "lr_factor")
    return [
        {key: value for key, value in group.items() if key not in left_out}
        for group in optimizer.param_groups
    ]


def _as_its_parameter(value: Any, parameter: torch.Tensor) -> Any:
    """A moment, sharded over ranks like its parameter; other values unchanged."""
    is_moment = isinstance(value, torch.Tensor) and value.shape == parameter.shape
    return like(value, parameter) if is_moment else value


def _nested(checkpoint: Checkpoint) -> dict[int, dict[str, Any]]:
    nested: dict[int, dict[str, Any]] = {}
    for name, value in (checkpoint.training | checkpoint.state["optimizer"]).items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            nested.setdefault(int(index), {})[key] = value
    return nested
