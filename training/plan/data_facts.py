"""What a plan says of its data: windows of each split, how full they are, and what is wrong with them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from conf import Config
from conf.budget import Budget, effective_batch
from experiment_utils.errors import Problem
from training.plan.mixture import mean_floor, source_facts

if TYPE_CHECKING:
    from data_loading import BatchOptions, Data, MixedData


def _options(config: Config, split: str) -> BatchOptions:
    """What the batches of a split are."""
    from data_loading import BatchOptions

    if split != "train":
        return BatchOptions.held_out(config.dataset, config.training.seq_len)
    step_windows = effective_batch(config.training)
    return BatchOptions.of(config.dataset, config.training.seq_len, step_windows)


def count_train_windows(config: Config, data: Data | MixedData) -> int:
    """Windows of an epoch."""
    from data_loading import train_windows

    batch = effective_batch(config.training)
    return train_windows(data, config.dataset, config.training.seq_len, batch)


def describe(config: Config, data: Data | MixedData, budget: Budget) -> dict[str, Any]:
    """The data in plain values: where they lie, their tokens and windows."""
    if not data.is_counted:
        return {**data.describe(), "train_windows": None, "val_windows": None, "floor_loss": None}
    facts = {**data.describe(), **_windows(config, data.parts), "floor_loss": mean_floor(config, data)}
    if isinstance(facts.get("sources"), list):
        read = source_facts(config, cast("MixedData", data), budget)
        each = zip(facts["sources"], data.parts, read, strict=True)
        facts["sources"] = [{**one, **_windows(config, [part]), **more} for one, part, more in each]
        facts["train_windows"] = count_train_windows(config, data)
    return facts


def _windows(config: Config, parts: Sequence[Data]) -> dict[str, Any]:
    """Windows of each split, and where they hold whole documents how full they are, over all parts."""
    facts: dict[str, Any] = {}
    full = {}
    for split in parts[0].splits:
        if any(split not in part.splits for part in parts):
            continue
        options = _options(config, split)
        counts = [options.count(part, split) for part in parts]
        packings = [options.packing(part, split) for part in parts]
        facts[f"{split}_windows"] = sum(counts)
        known = [packing.efficiency for packing in packings if packing is not None]
        if known:
            full[split] = sum(map(operator.mul, known, counts)) / sum(counts)
    facts.setdefault("val_windows", 0)
    return {**facts, **({"packing_efficiency": full} if full else {})}


def problems_with_data(config: Config, data: Data | MixedData) -> list[Problem]:
    """What of them cannot be trained on as the configuration says."""
    return [problem for part in data.parts for problem in _problems_with_part(config, part)]


def _problems_with_part(config: Config, data: Data) -> list[Problem]:
    seq_len, shift = config.training.seq_len, config.dataset.shift
    if config.dataset.documents == "separate":
        from data_loading.dataset.batch_options import too_short

        options = {split: _options(config, split) for split in data.splits}
        return [
            Problem("dataset.documents", too_short(data, split, of_split))
            for split, of_split in options.items()
            if not of_split.count(data, split)
        ]
    problems = [
        Problem(
            "training.seq_len",
            f"one window of {seq_len} needs {seq_len + shift} tokens, but the {split} split of "
            f"{data.ranges_of(split)[0].name} has {data.tokens(split):,}. Set a smaller training.seq_len or "
            "use more text",
        )
        for split in data.splits
        if not data.windows(split, seq_len, shift)
    ]
    if not problems and not count_train_windows(config, data):
        problems.append(
            Problem(
                "dataset.windows",
                f"not one step of dataset.windows={config.dataset.windows} with shift {config.dataset.shift} "
                f"fits in the {data.windows('train', seq_len):,} windows of {seq_len} tokens of the train "
                "split. Set a smaller training.seq_len, batch or shift, or use more text",
            )
        )
    return problems
