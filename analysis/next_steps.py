"""The next sensible commands after a run or a sweep, as they are typed."""

from __future__ import annotations

import shlex
from typing import Any

from analysis.outcome import Outcome, diverged
from analysis.run_folder import RunFolder
from conf import Config
from conf.help import options_of
from experiment_utils import DEFAULT_EFFECTIVE_BATCH

ENTRY = "python experiments.py"
_DEFAULTS = Config()


def after_run(run: RunFolder, outcome: Outcome) -> list[tuple[str, str]]:
    """Up to three (command, what it is for)."""
    if outcome.is_done:
        return _after_success(run)
    if diverged(run):
        smaller = {"optimizer.lr": float(f"{_lr(run) / 3:.1g}")}
        return [
            (_command(run, smaller), "a smaller learning rate: this one diverged"),
            (f"{ENTRY} -m study=lr_sweep", "which learning rate is best: a sweep"),
        ]
    if outcome.state == "cancelled":
        return [("the same command again", "goes on where it stopped")]
    log = shlex.quote(str(run.path / "log.txt"))
    if outcome.state in ("running", "stalled"):
        return [(f"tail -f {log}", "what it is doing")]
    return [
        (f"tail -n 40 {log}", "the last lines of its log"),
        (_command(run, {"plan": True}), "what this run is, and what it costs"),
    ]


def after_sweep(best: RunFolder | None, to_go_on: int) -> list[tuple[str, str]]:
    """Up to three (command, what it is for). to_go_on: runs that the same command would go on with."""
    found = []
    if to_go_on:
        found.append(("the same command again", f"runs what is not done ({to_go_on})"))
    if best is not None:
        seed = int(best.number("seed") or 0)
        again = _command(best, {"seed": f"{seed + 1},{seed + 2}"}, sweep=True)
        found.append((again, "is the best one luck?"))
        found.append((_command(best, model=_larger(best, 2)), "the best at a larger size"))
    found.append((f"{ENTRY} --help", "every key and choice"))
    return found[:3]


def _after_success(run: RunFolder) -> list[tuple[str, str]]:
    larger, far_larger = _larger(run, 2), _larger(run, 8)
    first = (
        (_command(run, {"seed": int(run.number("seed") or 0) + 1}), "the same with another seed")
        if larger == _model(run)
        else (_command(run, model=larger), "a larger model on the same data")
    )
    return [
        first,
        (f"{ENTRY} -m study=lr_sweep", "which learning rate is best: a sweep"),
        (_command(run, {"plan": True}, model=far_larger), "what a far larger one would cost"),
    ]


def _command(
    run: RunFolder, changes: dict[str, Any] | None = None, *, model: str | None = None, sweep: bool = False
) -> str:
    """The run again, with some keys changed."""
    own_shape = _shape(run) if model is None else {}
    kept = own_shape | _data(run) | _settings(run) | _place(run)
    overrides = {"model": model or _model(run)} | kept | (changes or {})
    words = [shlex.quote(f"{key}={_typed(value)}") for key, value in overrides.items()]
    return " ".join([ENTRY, *(["-m"] if sweep else []), *words])


def _shape(run: RunFolder) -> dict[str, Any]:
    """Layers and heads, where they are not those of the size's name."""
    usual = round((run.number("model.d_model") or 0) / 16)
    found = {key: run.number(key) for key in ("model.n_layers", "model.n_heads")}
    return {key: value for key, value in found.items() if value not in (None, usual)}


def _data(run: RunFolder) -> dict[str, Any]:
    """What names the run's data and its tokenizer, where they are not the default ones."""
    name, path = run.setting("dataset.name"), run.setting("dataset.path")
    named = {} if name in (None, _DEFAULTS.dataset.name) else {"dataset": name}
    if path is not None:
        named["dataset.path"] = path
    for key in ("val_path", "val_fraction", "repeat", "document_separator", "encoding", "errors"):
        value = run.setting(f"dataset.{key}")
        if value not in (None, getattr(_DEFAULTS.dataset, key)):
            named[f"dataset.{key}"] = value
    tokenizer = run.setting("tokenizer.name")
    if tokenizer is None or (not named and tokenizer == _DEFAULTS.tokenizer.name):
        return named
    named["tokenizer"] = tokenizer if tokenizer in options_of("tokenizer") else "custom"
    files = {key: run.setting(f"tokenizer.{key}") for key in ("path", "repo")}
    if tokenizer != "gpt2" or files["path"] is not None:
        named |= {f"tokenizer.{key}": value for key, value in files.items() if value is not None}
    return named


def _place(run: RunFolder) -> dict[str, Any]:
    """Where the runs go, where that is not the default."""
    runs_dir = run.setting("runs_dir")
    return {} if runs_dir in (None, _DEFAULTS.runs_dir) else {"runs_dir": runs_dir}


def _settings(run: RunFolder) -> dict[str, Any]:
    """The other keys that differ from their defaults, less those that were only filled in."""
    found = {}
    for group in ("arch", "optimizer", "schedule", "training"):
        defaults, settings = getattr(_DEFAULTS, group), run.setting(group)
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if value != getattr(defaults, key, value) and f"{group}.{key}" != "arch.name":
                found[f"{group}.{key}"] = value
    if found.get("training.effective_batch") == DEFAULT_EFFECTIVE_BATCH:
        del found["training.effective_batch"]
    budget, default = run.number("training.max_tokens"), run.number("dataset.default_max_tokens")
    if budget and default and 0 <= budget - default < (run.number("batch_tokens") or 0):
        del found["training.max_tokens"]
    return found


def _typed(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _larger(run: RunFolder, times: int) -> str:
    """The name of the smallest size at least `times` as wide, the largest there is, or the run's own."""
    own = run.number("model.d_model") or _DEFAULTS.model.d_model
    widths = {name: int(name[:-1]) for name in options_of("model") if name[:-1].isdigit()}
    wider = sorted((width, name) for name, width in widths.items() if width > own)
    if not wider:
        return _model(run)
    return next((name for width, name in wider if width >= times * own), wider[-1][1])


def _model(run: RunFolder) -> str:
    return str(run.setting("model.name") or _DEFAULTS.model.name)


def _lr(run: RunFolder) -> float:
    return run.number("optimizer.lr") or _DEFAULTS.optimizer.lr
