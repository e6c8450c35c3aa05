"""How a text is tokenized, in so far as it changes no id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from data_loading.pretokenizer.blocks import RUN_LIMIT_BYTES
from experiment_utils.errors import UserError


@dataclass(frozen=True)
class Options:
    """How the work is done and what lies where; none of it changes the ids.

    overwrite: replace a set made from something else. append: behind a set of shards that is there.
    shard_tokens: tokens a shard; None: one file, or as the set has that is appended to. val_fraction: of
    the tokens, held out, which the manifest says; None: left to those who read it. engine: a name of
    `engines.ENGINES` or auto. workers: threads that encode; None, also for block_bytes: chosen by the text's
    size and the engine.
    run_limit_bytes: a longer run of text without a safe cut is an error, since it has to be encoded whole.
    terminal: where the progress line moves; None: lines go to the log.
    """

    overwrite: bool = False
    append: bool = False
    shard_tokens: int | None = None
    val_fraction: float | None = None
    engine: str = "auto"
    workers: int | None = None
    block_bytes: int | None = None
    run_limit_bytes: int = RUN_LIMIT_BYTES
    terminal: IO[str] | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise UserError(
                f"workers {self.workers}: expected at least 0 (0: in the thread that reads)",
                code="workers-negative",
            )
