"""Facts of one run folder for a table of runs, as plain values that JSON can hold.

The state is not among them: whether a run that says `running` still runs is known only when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conf.schema import Model
from conf.sizes import size_name
from experiment_utils.json_values import csv_number, is_number, leaves
from experiment_utils.metrics_file import read_columns
from experiment_utils.run_folder import RunFolder
from memory.measure.host import run_memory
from training.attempt.made_by import codes_of

VERSION = 8
"""Version of the facts: an index of another version is not read."""

FILES = ("config.yaml", "run.json", "status.json", "metrics.csv", "evals.jsonl", "outcome.json")
"""Files that the facts are read from."""

_OF_METRICS = {"step": "step", "tokens": "tokens", "flops": "flops", "train_loss": "train_loss",
               "lr_now": "lr", "grad_norm": "grad_norm", "seconds": "seconds", "mfu": "mfu"}  # fmt: skip
"""Name here -> column of metrics.csv."""


def facts_of(folder: Path) -> dict[str, Any]:
    """Values, configuration and damage of a run folder; what a file contains never raises.

    Returns:
        `values`: column to value, None if the run does not record it; losses are in nats per token and can be
        nan. `config`: dotted path to value. `damage`: a line for each file that is not whole. `metrics`: the
        user's own columns, name to unit.
    """
    run = RunFolder(folder)
    written = run.run.get("config")
    config = leaves(written if isinstance(written, dict) else run.config)
    values = {
        **_of_own_metrics(run), **_of_config(config), **_of_plan(run), **_of_status(run), **_of_losses(run),
        **_of_memory(run),
    }  # fmt: skip
    return {"values": values, "config": config, "damage": run.damage, "metrics": run.own_metrics}


def _of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    seed = config.get("seed")
    return {
        "model": _size(config),
        "d_model": config.get("model.d_model"),
        "lr": config.get("optimizer.lr"),
        "seed": seed if config.get("seed_init") is None else config["seed_init"],
        "seq_len": config.get("training.seq_len"),
        "tags": config.get("tags"),
        "notes": config.get("notes"),
    }


def _size(config: Mapping[str, Any]) -> str | None:
    name, width = config.get("model.name"), config.get("model.d_model")
    if not isinstance(name, str) or not isinstance(width, int):
        return None if name is None else str(name)
    return size_name(Model(name, width, config.get("model.n_layers"), config.get("model.n_heads")))


def _of_plan(run: RunFolder) -> dict[str, Any]:
    return {
        "identity": run.run.get("identity"),
        "parameters": run.run.get("parameters"),
        "non_embedding": run.run.get("non_embedding"),
        "flops_per_token": run.run.get("flops_per_token"),
        "budget_tokens": run.run.get("tokens"),
        "batch_tokens": run.run.get("batch_tokens"),
        "steps": run.run.get("steps"),
        "data": run.fact("data.fingerprint"),
        "tokenizer": run.fact("data.tokenizer"),
        "attempts": len(run.attempts),
        "codes": [code and [code.hash, code.commit, code.started_s] for code in codes_of(run.run)],
        "device": run.device,
    }


def _of_status(run: RunFolder) -> dict[str, Any]:
    return {"said_state": run.status.get("state"), "said_reason": run.status.get("reason")}


def _of_losses(run: RunFolder) -> dict[str, Any]:
    last = _last_row(run)
    losses = [float(record["loss"]) for record in run.evals]
    finite = [loss for loss in losses if math.isfinite(loss)]
    newest = run.evals[-1] if run.evals else {}
    val_loss = losses[-1] if losses else None
    if not losses and last["step"] is not None:  # of a version that had them in metrics.csv alone
        column = read_columns(run.path / "metrics.csv", ["val_loss"]).values.get("val_loss", [])
        val_loss = next((loss for loss in reversed(column) if not math.isnan(loss)), None)
    tokens, seconds = last["tokens"], last["seconds"]
    return {
        **last,
        "tokens_per_s": tokens / seconds if tokens and seconds and math.isfinite(seconds) else None,
        "val_loss": val_loss,
        "best_val_loss": min(finite) if finite else val_loss,
        "val_at_tokens": newest.get("tokens"),
        "eval_tokens": newest.get("eval_tokens"),
        "bits_per_byte": newest.get("bits_per_byte"),
        "diverged": any(
            value is not None and not math.isfinite(value)
            for value in (last["train_loss"], last["grad_norm"], val_loss)
        ),
    }


def _of_own_metrics(run: RunFolder) -> dict[str, Any]:
    """Newest value of each registered metric: of the last evaluation, or of the last row."""
    newest, tail = run.evals[-1] if run.evals else {}, run.metrics_tail
    row = dict(zip(tail.columns, tail.row, strict=True)) if tail.row is not None else {}
    return {
        name: float(newest[name]) if is_number(newest.get(name)) else csv_number(row.get(name))
        for name in run.own_metrics
    }


def _last_row(run: RunFolder) -> dict[str, float | None]:
    nothing: dict[str, float | None] = dict.fromkeys(_OF_METRICS)
    tail = run.metrics_tail
    if tail.row is None:
        return nothing
    found = dict(zip(tail.columns, tail.row, strict=True))
    fields = {name: found.get(column) for name, column in _OF_METRICS.items()}
    values = {name: csv_number(field) for name, field in fields.items()}
    if any(field and values[name] is None for name, field in fields.items()):
        run.note_damage("metrics.csv: its last line holds what is no number")
        return nothing
    return values


def _of_memory(run: RunFolder) -> dict[str, Any]:
    said = run.outcome
    limit, parts = said.get("peak_limit_bytes"), run.fact("memory.host_parts")
    return {
        "peak_bytes": run_memory(
            said.get("peak_unreclaimable_bytes"), said.get("peak_own_bytes"), said.get("limit_at")
        ),
        "limit_bytes": said.get("limit_bytes") if limit is None else limit,
        "limit_at": said.get("limit_at"),
        "estimate_bytes": run.fact("memory.host_bytes"),
        "own_bytes": said.get("peak_own_bytes"),
        "launcher_bytes": parts.get("experiments.py") if isinstance(parts, dict) else None,
    }
