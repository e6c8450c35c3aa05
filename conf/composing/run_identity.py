"""What makes two runs the same one, and the name that tells a run from the others of its study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

from conf import Config
from conf.composing.differences import varying
from conf.own_parts.in_use import options_of_identity
from conf.schema import REMOVED_KEYS, name_of
from conf.seeding import seeds
from conf.sizes import size_name

WHERE_IT_RUNS = (
    "hydra", "plan", "wait", "then", "notify", "study", "runs_dir", "tags", "notes", "slurm", "memory",
    "logging", "ensemble", "code", "again", "plugins",
)  # fmt: skip
"""Keys that do not change what a run computes: not in its identity."""

HOW_IT_IS_COMPUTED = (
    "training.micro_batch", "training.activation_checkpointing", "training.loss_chunk",
    "training.threads", "training.parallel", "dataset.reader", "dataset.max_resident",
    "dataset.verify", "dataset.auto_tokenize", "training.checkpoint_every", "training.keep_checkpoints",
    "training.milestones", "training.dead_units", "training.checkpoint_writing", "training.profile",
    "training.max_time", "training.deterministic", "training.cuda_graph", "training.callbacks",
    "dataset.cache", "dataset.disk_budget", "dataset.download_workers", "dataset.part_size",
)  # fmt: skip
"""Keys that may change between two attempts of one run: not in its identity, recorded by attempt.

Losses are bit for bit the same while they stay the same.
"""

REPLACED_BY_FINGERPRINT = (
    "dataset.name", "dataset.source", "dataset.sources", "dataset.path", "dataset.val_path", "dataset.dtype",
    "dataset.document_separator", "dataset.encoding", "dataset.errors", "dataset.default_max_tokens",
    "tokenizer", "restore.from", "restore.step",
)  # fmt: skip
"""Keys that say where data lie and how they were made; the identity holds fingerprints of data
and checkpoint."""

TOLD_BESIDE = (
    "optimizer.lr", "seed", "seed_init", "seed_data", "training.max_tokens", "training.max_steps",
    "training.tokens_per_param",
)  # fmt: skip
"""Keys that a run's name tells, or the column of tokens in every table of runs."""

_NOT_IN_IDENTITY = (*WHERE_IT_RUNS, *HOW_IT_IS_COMPUTED, *REPLACED_BY_FINGERPRINT, *REMOVED_KEYS)


def identity(config: Config, data_fingerprint: str, restored: str | None = None) -> str:
    """Name of what a run computes: SHA-256 (hex) of the resolved config less where and how, and of the data.

    restored: fingerprint of the checkpoint that it begins with, if it does.

    A key with `as_before` in its schema is left out at that value, and one with `only_with` where the other
    key is null, so that runs made before the key existed keep their identity.
    """
    described = {"config": _hashed(config, ""), "data": data_fingerprint}
    if restored is not None:
        described["restored"] = restored
    text = json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_in_identity(path: str) -> bool:
    """Whether another value of the key makes another run."""
    return path not in _NOT_IN_IDENTITY and path.partition(".")[0] not in _NOT_IN_IDENTITY


def makes_another_run(path: str) -> bool:
    """Whether runs that differ in this key, or in this group, have folders of their own.

    Data and checkpoints are in the identity by their fingerprints, runs_dir and study are in the path.
    """
    left_out = {*WHERE_IT_RUNS, *HOW_IT_IS_COMPUTED} - {"runs_dir", "study", "ensemble"}
    return not {path, path.partition(".")[0]} & left_out


def _hashed(node: Any, path: str) -> Any:
    if not is_dataclass(node):
        return node
    kept = {}
    section: Any = type(node)
    for key, name, key_path in _fields_of_identity(section, path):
        value = getattr(node, key.name)
        as_before = key.metadata.get("as_before", MISSING)
        if key_path == "own":
            value = options_of_identity(node)
        if as_before is not MISSING and value == as_before:
            continue
        needed = key.metadata.get("only_with")
        if needed is not None and getattr(node, needed) is None:
            continue
        hashed = _hashed(value, key_path)
        if hashed or not is_dataclass(value):  # a group that is as before, in all of its keys
            kept[name] = hashed
    return kept


@cache
def _fields_of_identity(section: Any, path: str) -> list[tuple[Field[Any], str, str]]:
    """Field, name and config path of each key of a section that is in the identity."""
    found = [(key, name_of(key.name)) for key in fields(section)]
    paths = [(key, name, f"{path}.{name}" if path else name) for key, name in found]
    return [(key, name, key_path) for key, name, key_path in paths if is_in_identity(key_path)]


def run_name(config: Config, run_identity: str) -> str:
    """A name a person can read: `32d-lr0.003-seed1-1a2b3c4d`, and `seed1-data7` where seeds are set apart."""
    init, data = seeds(config)
    apart = f"-data{data}" if data != init else ""
    return f"{size_name(config.model)}-lr{config.optimizer.lr:g}-seed{init}{apart}-{run_identity[:8]}"


def varying_settings(configs: Sequence[Config]) -> dict[str, list[str]]:
    """Columns (title to a value for each config) that tell runs apart where their names do not."""
    left_out: tuple[str, ...] = (*WHERE_IT_RUNS, *HOW_IT_IS_COMPUTED, *TOLD_BESIDE)
    begins = {(one.restore.from_, one.restore.what, one.restore.step) for one in configs}
    if len(begins) == len({begins_from for begins_from, _, _ in begins}):  # which says the rest
        left_out = (*left_out, "restore.what", "restore.step")
    return varying(configs, lambda path: not {path, path.partition(".")[0]} & {*left_out})
