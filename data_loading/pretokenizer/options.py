"""Options of tokenizing that change no id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from data_loading.pretokenizer.blocks import RUN_LIMIT_BYTES
from experiment_utils.errors import UserError


@dataclass(frozen=True)
class Options:
    """Options of the work and of the files of a set; none of them changes the ids.

    overwrite: replace a set made from something else. append: add to a set of shards. shard_tokens: None: one
    file, or as the set to append to has. val_fraction: held-out share of the tokens, for the manifest; None:
    readers decide. engine: a name of the engines' registry or auto. workers: threads that encode; None, also
    for block_bytes: by the text's size and the engine. run_limit_bytes: a longer run of text without a safe
    cut is an error, since it is encoded whole. terminal: of the moving line; None: lines go to the log.
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
