"""What a run reads, in lines of its log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from experiment_utils.quantities import counted, format_count
from memory import format_bytes
from training.report.log import ALONE, IN_FILE

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
            extra=ALONE,
        )
        return
    full = train_set.packing_efficiency
    on_disk = format_bytes(facts["file_bytes"])
    log.info("%s: %s on disk, %s", facts["path"], on_disk, train_set.reader, extra=IN_FILE)
    log.info(
        "%s tokens: train %s (%.0f%%) = %s of %s, val %s = %s%s",
        format_count(facts["tokens"]),
        format_count(facts["train_tokens"]),
        100 * facts["train_tokens"] / sum(facts[f"{split}_tokens"] for split in ("train", "val", "test")),
        counted(len(train_set), "sequence"),
        train_set.seq_len if full is None else f"{train_set.seq_len}, {full:.1%} full of documents",
        format_count(facts["val_tokens"]),
        format_count(sum(len(val.dataset) for val in val_sets)),
        f", test {format_count(facts['test_tokens'])}" if facts["test_tokens"] else "",
        extra=ALONE,
    )
    for line in plan.source_lines():
        log.info("%s", line, extra=ALONE)
    floor = facts["floor_loss"]
    if floor is not None:
        log.info("floor %.4f nats a token: no model's expected val loss is below it", floor, extra=ALONE)
