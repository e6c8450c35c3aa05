"""Try the user's metrics, callbacks and step on a small model, before anything is submitted."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conf import Config
from conf.own_parts.call import called
from conf.own_parts.load import own_part
from conf.parts_table import Part
from conf.schema import Model
from conf.suggestions import nearest, or_list
from experiment_utils.errors import Problem, UserError
from models import LanguageModel, LossModel
from models.loss.lm_loss import IGNORED
from models.options.shape import resolve_shape
from training.own_parts.own_callback import EVENTS, built, callbacks_of, checked_state
from training.own_parts.own_metric import (
    EVALUATION,
    STEP,
    Metric,
    metrics_of,
    sum_over_labels,
    values_at_step,
)
from training.own_parts.own_model import build_run_model
from training.own_parts.own_step import check_loss
from training.own_parts.step_view import Guard, StepView

BATCH, SEQ, VOCAB = 2, 16, 128
"""Sizes of the small model and its batch, at most those of the run."""
HEAD_DIM = 8
OF_ROWS = (
    "step", "tokens", "train_loss", "val_loss", "lr", "grad_norm", "flops", "seconds", "tokens_per_s", "mfu",
)  # fmt: skip
"""Columns of metrics.csv."""
OF_EVALUATIONS = ("loss", "perplexity", "source", "extra", "version", "dead_units", "by_position")
"""Fields of evals.jsonl that are no columns of a run."""
OF_RUNS = (
    "run", "state", "reason", "folder", "code", "lr_now", "said_state", "said_reason", "model", "d_model",
    "seed", "seq_len", "tags", "notes", "identity", "parameters", "non_embedding", "flops_per_token",
    "budget_tokens", "batch_tokens", "steps", "data", "tokenizer", "attempts", "codes", "device",
    "best_val_loss", "val_at_tokens", "eval_tokens", "bits_per_byte", "diverged", "peak_bytes",
    "limit_bytes", "limit_at", "estimate_bytes", "own_bytes", "launcher_bytes", "time", "N", "D", "n", "d",
)  # fmt: skip
"""Columns of tables of runs."""
TAKEN = frozenset((*OF_ROWS, *OF_EVALUATIONS, *OF_RUNS))
"""Names that no metric can have."""


@dataclass(frozen=True)
class _Small:
    """A small model of the family of the run, and a batch for it."""

    model: LanguageModel
    batch: dict[str, Tensor]


def check_contracts(config: Config, vocab_size: int) -> None:
    """Check the metrics, callbacks and step of a configuration.

    Raises:
        UserError: the first that does not keep its contract; names FILE:LINE.
    """
    metrics, callbacks, step = metrics_of(config), callbacks_of(config), own_part(config, "step")
    if not (metrics or callbacks or step):
        return
    _check_sharded(config, [*(one.part for one in metrics if one.at == STEP), *callbacks])
    for metric in metrics:
        _check_registration(metric)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for metric in metrics_of(config, EVALUATION):
            _check_metric(metric, vocab_size, config.training.seq_len)
        if step is None and not callbacks and not metrics_of(config, STEP):
            return
        small = _small_model(config, vocab_size)
        guard = Guard(small.model)
        if step is not None:
            _check_step(config, small)
        view = _view_of(small)
        for metric in metrics_of(config, STEP):
            values_at_step([metric], guard, view)
        for part in callbacks:
            _check_callback(config, part, guard, view)


def _check_sharded(config: Config, parts: list[Part]) -> None:
    if parts and config.training.parallel == "fsdp":
        what = f"fsdp: no rank has the whole weights that {parts[0].kind} {parts[0].name} can read. Use ddp"
        raise UserError(Problem("training.parallel", what, "part-sharded"))


def _check_registration(metric: Metric) -> None:
    part, name = metric.part, metric.part.name
    if metric.at not in (EVALUATION, STEP):
        what = f'metric {name}: at={metric.at!r}; choices: "{EVALUATION}", "{STEP}"'
        raise UserError(Problem(part.place, what, "metric-at"))
    if name in TAKEN:
        what = f"metric {name}: a column of ours has this name. Rename it"
        raise UserError(Problem(part.place, what, "name-taken"))


def _check_metric(metric: Metric, vocab_size: int, seq_len: int) -> None:
    shape = (BATCH, min(SEQ, seq_len))
    logits, labels = torch.randn(*shape, vocab_size), torch.randint(vocab_size, shape)
    labels[0, 0] = IGNORED
    guard = Guard(torch.nn.Module())
    value = guard.call(metric.part, metric.code, logits, labels, metric.options)
    sum_over_labels(metric.part, value, labels)


def _small_model(config: Config, vocab_size: int) -> _Small:
    """A model of the run's family with few parameters; of its own size if the family takes no other."""
    shape = resolve_shape(config.model, config.arch)
    seq, vocab = min(SEQ, config.training.seq_len), min(VOCAB, vocab_size)
    tiny = Model("custom", HEAD_DIM * shape.n_heads, 1, shape.n_heads)
    positions = config.arch.max_positions or config.training.seq_len
    try:
        model = build_run_model(dataclasses.replace(config, model=tiny), vocab, positions)
        ids = torch.randint(vocab, (BATCH, seq))
        model(ids)
    except (UserError, RuntimeError, ValueError):
        model = build_run_model(config, vocab_size, positions)
        ids = torch.randint(vocab, (BATCH, config.training.seq_len))
    return _Small(model, {"input_ids": ids, "labels": ids.roll(-1, 1)})


def _check_step(config: Config, small: _Small) -> None:
    found = own_part(config, "step")
    assert found is not None
    part, registered, options = found
    if config.dataset.source == "mix":
        what = f"a mixture needs the loss of each source, which step {part.name} does not have. Use default"
        raise UserError(Problem("training.step", what, "step-mixture"))
    loss = check_loss(part, called(part, registered.code, small.model, dict(small.batch), options))
    called(part, loss.backward)
    if all(one.grad is None for one in small.model.parameters()):
        what = f"step {part.name}: its loss does not depend on the parameters of the model"
        raise UserError(Problem(part.place, what, "step-value"))


def _view_of(small: _Small) -> StepView:
    small.model.zero_grad(set_to_none=True)
    ids, labels = small.batch["input_ids"], small.batch["labels"]
    loss = LossModel(small.model)(ids, labels, None, ids.numel())
    loss.backward()
    optimizer = torch.optim.AdamW(small.model.parameters())
    optimizer.step()
    return StepView(
        step=1,
        total_steps=2,
        tokens=ids.numel(),
        loss=loss.detach(),
        grad_norm=torch.ones(()),
        lr=1e-3,
        model=small.model,
        optimizer=optimizer,
        folder=Path(),
    )


def _check_callback(config: Config, part: Part, guard: Guard, view: StepView) -> None:
    one = built(config, part)
    unknown = [name for name in dir(one) if name.startswith("on_") and name not in EVENTS]
    if unknown:
        close = nearest(unknown[0], EVENTS) or EVENTS
        what = f"callback {part.name}: {unknown[0]} is never called; choices: {or_list(close)}"
        raise UserError(Problem(part.place, what, "callback-method"))
    has = {name: callable(getattr(one, name, None)) for name in (*EVENTS, "state_dict", "load_state_dict")}
    if not any(has[name] for name in EVENTS):
        what = f"callback {part.name} has none of {', '.join(EVENTS)}"
        raise UserError(Problem(part.place, what, "callback-method"))
    if has["state_dict"] != has["load_state_dict"]:
        lacks = "load_state_dict" if has["state_dict"] else "state_dict"
        what = f"callback {part.name} lacks {lacks}: its state would not be restored"
        raise UserError(Problem(part.place, what, "callback-method"))
    measured = {metric.part.name: 0.0 for metric in metrics_of(config, EVALUATION)}
    with tempfile.TemporaryDirectory() as folder:
        first = dataclasses.replace(view, folder=Path(folder))
        later = dataclasses.replace(first, val_loss=view.loss.item(), metrics=measured)
        for name, seen in zip(EVENTS, (first, later, later), strict=True):
            if has[name]:
                guard.call(part, getattr(one, name), seen)
        if has["state_dict"]:
            state: dict[str, Any] = checked_state(part, guard.call(part, one.state_dict))
            guard.call(part, built(config, part).load_state_dict, state)
