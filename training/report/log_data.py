"""What a run reads, in lines of its log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from experiment_utils.quantities import counted, format_count
from memory import format_bytes

if TYPE_CHECKING:
    from data_loading import HubStream, StreamingDataset, StreamingMixture
    from training.evaluation.evaluate import HeldOut
    from training.plan.run_plan import Plan

log = logging.getLogger("training")


def tell_data(
    plan: Plan, train_set: StreamingDataset | StreamingMixture | HubStream, val_sets: list[HeldOut]
) -> None:
    """Sizes, splits and sources, as the plan found them and the run opened them."""
    from data_loading import HubStream

    facts = plan.data or {}
    if isinstance(train_set, HubStream):
        log.info(
            "%s at %s: streamed with tokenizer %s; val %s of %s",
            facts["path"],
            train_set.revision[:12],
            facts["tokenizer"],
            counted(sum(len(val.dataset) for val in val_sets), "sequence"),
            train_set.seq_len,
        )
        return
    full = train_set.packing_efficiency
    log.info("%s: %s on disk, %s", facts["path"], format_bytes(facts["file_bytes"]), train_set.reader)
    log.info(
        "%s tokens: train %s (%.0f%%) = %s of %s, val %s = %s%s",
        format_count(facts["tokens"]),
        format_count(facts["train_tokens"]),
        100 * facts["train_tokens"] / sum(facts[f"{split}_tokens"] for split in ("train", "val", "test")),
        counted(len(train_set), "sequence"),
        train_set.seq_len if full is None else f"{train_set.seq_len}, {full:.1%} full of documents",
        format_count(facts["val_tokens"]),
        counted(sum(len(val.dataset) for val in val_sets), "sequence"),
        f", test {format_count(facts['test_tokens'])}" if facts["test_tokens"] else "",
    )
    for line in plan.source_lines():
        log.info("%s", line)
    floor = facts["floor_loss"]
    if floor is not None:
        log.info("floor %.4f nats a token: no model's expected val loss is below it", floor)
