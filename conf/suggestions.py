"""What was probably meant: the nearest of the names that there are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from conf.keys import groups, keys

SAME_THING_ELSEWHERE = {
    "batch_size": "training.effective_batch",
    "block_size": "training.seq_len",
    "checkpoint_interval": "training.checkpoint_every",
    "clip": "optimizer.grad_clip",
    "context_length": "training.seq_len",
    "data": "dataset",
    "data_path": "dataset.path",
    "depth": "model.n_layers",
    "gradient_accumulation_steps": "training.micro_batch",
    "hidden_size": "model.d_model",
    "learning_rate": "optimizer.lr",
    "max_iters": "training.max_steps",
    "max_lr": "optimizer.lr",
    "min_lr": "schedule.final_lr_fraction",
    "n_embd": "model.d_model",
    "n_head": "model.n_heads",
    "n_layer": "model.n_layers",
    "num_heads": "model.n_heads",
    "num_layers": "model.n_layers",
    "output_dir": "runs_dir",
    "sequence_length": "training.seq_len",
    "steps": "training.max_steps",
    "tokens": "training.max_tokens",
    "train_path": "dataset.path",
    "warmup": "schedule.warmup_fraction",
    "warmup_steps": "schedule.warmup_steps",
    "width": "model.d_model",
}
"""What other programs call it, to what it is called here."""


def nearest(word: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` of the names that look like `word`, the likeliest first.

    Names that hold a number (`256d`) are ordered by the distance of the numbers.
    """
    names = list(names)
    wanted = _number(word)
    numbered = {name: number for name in names if (number := _number(name)) is not None}
    if wanted is not None and len(numbered) == len(names):
        return sorted(names, key=lambda name: (abs(numbered[name] - wanted), numbered[name]))[:count]
    found = difflib.get_close_matches(word.lower(), [name.lower() for name in names], count, cutoff=0.5)
    return [name for close in found for name in names if name.lower() == close]


def no_such(noun: str, given: str, options: Collection[str]) -> str:
    """What is wrong with a name that is not among the options: the nearest ones, then all."""
    close = nearest(given, options)
    if not close:
        return f"no {noun} `{given}`; choices: {' '.join(options)}"
    shown = f"no {noun} `{given}`; nearest: {', '.join(close)}"
    return shown if len(close) == len(options) else f"{shown} (all: {' '.join(options)})"


def nearest_keys(path: str, count: int = 3) -> list[str]:
    """Up to `count` keys or groups that an unknown config path may have meant.

    The last part weighs most: `training.lrr` means optimizer.lr, not some key of training.
    """
    last = path.rpartition(".")[2]
    if path.startswith("hydra.") and last in keys():  # a key of ours that has no group
        return [last]
    if last in SAME_THING_ELSEWHERE:
        return [SAME_THING_ELSEWHERE[last]]
    # those of an ensemble are named as the keys whose values they list, which are meant
    settable = [known for known in keys() if not known.startswith("ensemble.")]
    known_paths = settable if "." in path else [*settable, *groups()]
    scores = {known: _likeness(path, known) for known in known_paths}
    best = sorted(scores, key=lambda known: -scores[known])
    return [known for known in best[:count] if scores[known] >= max(0.6, scores[best[0]] - 0.12)]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key in which numbers count as numbers: 48d before 112d."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", name)
    ]


def or_list(names: Collection[str], word: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


def _likeness(path: str, known: str) -> float:
    group, _, last = path.rpartition(".")
    known_group, _, known_last = known.rpartition(".")
    return 0.85 * _ratio(last, known_last) + 0.15 * _ratio(group, known_group)


def _ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def _number(name: str) -> int | None:
    found = re.fullmatch(r"\D{0,3}(\d+)\D{0,3}", name)
    return int(found.group(1)) if found else None
