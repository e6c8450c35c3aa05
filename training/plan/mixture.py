"""What a run reads of each source of a mixture: counted before it starts, told in its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.proportions import parse_milestone, parse_weights, weight_text
from conf.schema import Dataset
from experiment_utils.quantities import format_count

if TYPE_CHECKING:
    from conf.budget import Budget
    from data_loading import Data, HubStream, MixedData, StreamingDataset, StreamingMixture


def is_mixture(config: Config) -> bool:
    return config.dataset.source == "mix"


def repeats(config: Config) -> bool:
    """Whether data go on for as long as a run reads."""
    return config.dataset.repeat or (is_mixture(config) and config.dataset.when_dry == "repeat")


def with_plain_weights(config: Config) -> Config:
    """Weights written in one way, so that 0.70 and 7/10 are one run; as they are where rules refuse them."""
    dataset = config.dataset
    try:
        weights = parse_weights(dataset.weights, zero=bool(dataset.curriculum))
        milestones = [str(parse_milestone(text)) for text in dataset.curriculum]
    except ValueError:
        return config
    typed = dataclasses.replace(dataset, weights=list(map(weight_text, weights)), curriculum=milestones)
    return dataclasses.replace(config, dataset=typed)


def budget_words(config: Config, data: MixedData) -> dict[str, str]:
    """For `resolve_budget`: what ends, and what does not end it."""
    if data.when_dry == "rebalance":
        what = "the mixture, which ends where every source was read once,"
        return {"what": what, "to_repeat": "dataset.when_dry=repeat"}
    last = data.names[_schedule(config, data).ended_by]
    return {
        "what": f"the mixture, which ends where {last} is dry (dataset.when_dry={data.when_dry}),",
        "to_repeat": "dataset.when_dry=repeat, or go on without the dry source: dataset.when_dry=rebalance",
    }


def source_facts(config: Config, data: MixedData, budget: Budget) -> list[dict[str, Any]]:
    """What the run reads of each source, in their order.

    read_tokens: in all; passes: over its train split; dry_after_tokens: of the run, by when all of it was
    read once, None where that is not within the budget.
    """
    schedule = _schedule(config, data)
    windows = budget.steps * budget.effective_batch
    seq_len = config.training.seq_len
    facts = []
    for i, count in enumerate(schedule.counts(windows).tolist()):
        dry, size = schedule.dry[i], int(schedule.sizes[i])
        facts.append(
            {
                "read_tokens": count * seq_len,
                "passes": count / size,
                "dry_after_tokens": dry * seq_len if dry is not None and dry <= windows else None,
            }
        )
    return facts


def source_lines(facts: Mapping[str, Any], when_dry: str) -> Iterator[str]:
    """A line for each source of a described mixture: weight, what is read of it, when it is dry."""
    goes_on = {"stop": "", "repeat": ", then again", "rebalance": ", then the others alone"}
    for source in facts["sources"]:
        dry = source["dry_after_tokens"]
        line = (
            f"{source['name']}: weight {source['weight']}, {format_count(source['read_tokens'])} tokens = "
            f"{source['passes']:.3g} x its {format_count(source['train_tokens'])} for training"
        )
        yield line + (f"; all read after {format_count(dry)}{goes_on[when_dry]}" if dry is not None else "")


def milestone_lines(dataset: Dataset, budget_tokens: int) -> Iterator[str]:
    """A line of a mixture's milestones, and one of those that the budget does not reach."""
    if dataset.curriculum:
        yield f"other weights: {', '.join(dataset.curriculum)}"
    beyond = [text for text in dataset.curriculum if parse_milestone(text).tokens >= budget_tokens]
    if beyond:
        yield f"never reached: {', '.join(beyond)}: the budget ends at {format_count(budget_tokens)} tokens"


def mean_floor(config: Config, data: Data | MixedData) -> float | None:
    """The least val loss (nats a token) there can be, of a mixture by its weights; None: unknown."""
    from data_loading import MixedData, floor_loss

    training, dataset = config.training, config.dataset
    if dataset.documents == "separate" or "val" not in data.splits:  # unknown for packed rows
        return None
    floors = [
        floor_loss(
            part,
            eval_tokens=training.eval_tokens,
            seq_len=training.seq_len,
            shift=dataset.shift,
            masked=dataset.documents == "masked",
        )
        for part in data.parts
    ]
    known = [floor for floor in floors if floor is not None]
    if len(known) < len(floors):
        return None
    weights = list(map(float, data.weights)) if isinstance(data, MixedData) else [1.0]
    return sum(weight * floor for weight, floor in zip(weights, known, strict=True))


def tokens_read(
    train_set: StreamingDataset | StreamingMixture | HubStream, budget: Budget
) -> Callable[[int], list[int]] | None:
    """Steps to the tokens that they read of each source; None where the data are one set."""
    from data_loading import StreamingMixture

    if not isinstance(train_set, StreamingMixture):
        return None
    schedule, seq_len = train_set.schedule, train_set.seq_len

    def read(steps: int) -> list[int]:
        tokens: list[int] = (schedule.counts(steps * budget.effective_batch) * seq_len).tolist()
        return tokens

    return read


def _schedule(config: Config, data: MixedData) -> Any:
    from conf.budget import effective_batch
    from data_loading import train_schedule

    return train_schedule(data, config.dataset, config.training.seq_len, effective_batch(config.training))
