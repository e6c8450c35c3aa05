"""Training a byte-level BPE tokenizer on a text, GPT-2's way: its pattern, all 256 bytes, no unknowns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.blocks import make_blocks
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.text_io.chunks import not_utf8
from data_loading.text_io.source import Source
from data_loading.tokenizers.cutting.cuts import cut_rule
from data_loading.tokenizers.read_files import holds_tokenizer
from data_loading.tokenizers.tokenizer import END_OF_TEXT
from experiment_utils import atomic_files
from experiment_utils.errors import UserError

SMALLEST = 257
"""The 256 bytes and end-of-text."""
LARGEST = 1 << 20
TRAINING_BYTES = 1 << 30
"""Text that is read at most, in parts spread evenly, so that the counts of its words fit into memory."""
_PART_BYTES = 1 << 18
_MIN_FREQUENCY = 2
_TOKENIZER = "tokenizer.json"
_RECORD = "training.json"


def check_size(vocab_size: int) -> None:
    """Raise UserError if no tokenizer can have this number of ids."""
    if not SMALLEST <= vocab_size <= LARGEST:
        raise UserError(
            f"--train-tokenizer {vocab_size}: expected {SMALLEST} (all bytes and end of text) to {LARGEST:,}",
            code="bpe-size",
        )


def train_tokenizer(
    source: Source | Inputs, vocab_size: int, folder: Path, log: Callable[[str], None] = lambda line: None
) -> Path:
    """Train a tokenizer of that size on the text, end-of-text the last of its ids; returns its folder.

    Nothing is done if the folder holds the tokenizer of this text and size. The same text gives the same
    tokenizer. Sennrich et al., arXiv:1508.07909; byte-level as in GPT-2 (Radford et
    al., 2019).

    Raises:
        UserError: a size that cannot be, a text that cannot be read, or another tokenizer in the folder.
        OSError: it cannot be written; then nothing is left.
    """
    check_size(vocab_size)
    inputs = as_inputs(source)
    if not inputs.can_continue:
        raise UserError(
            f"--train-tokenizer: {inputs.what} cannot be read twice. Write it to a file first",
            code="input-not-readable-twice",
        )
    record = {"vocab_size": vocab_size, "source": inputs.state(), "options": inputs.options}
    known = _read_record(folder)
    alone = {**record, "source": inputs.state()[0]}  # of one text, by an earlier version
    if known is not None and {key: known.get(key) for key in record} in (record, alone):
        log(f"{folder}: the tokenizer of this text, trained earlier")
        return folder
    if known is not None or holds_tokenizer(folder):
        raise UserError(
            f"{folder} holds a tokenizer of another text. Use it (--tokenizer {folder}), or remove it to "
            "train one on this text",
            code="bpe-of-other-text",
        )
    folder.mkdir(parents=True, exist_ok=True)  # fails before the work if nothing can be written
    try:
        reached, used_bytes = _train(inputs, vocab_size, folder / _TOKENIZER, log)
        atomic_files.write_json(folder / _RECORD, {**record, "ids": reached, "bytes": used_bytes})
    except BaseException:
        with suppress(OSError):
            (folder / _TOKENIZER).unlink(missing_ok=True)
            folder.rmdir()  # not done if other things are in it
        raise
    log(f"{folder}: {reached:,} ids, trained on {used_bytes / 1e6:,.1f} MB")
    return folder


def _train(source: Inputs, vocab_size: int, path: Path, log: Callable[[str], None]) -> tuple[int, int]:
    """Write the tokenizer; returns (its ids, bytes of text that were looked at)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,  # end-of-text is added behind, as GPT-2 has it
        min_frequency=_MIN_FREQUENCY,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    counted = _Counted()
    log(f"training a byte-level BPE of {vocab_size:,} ids on {source.what}")
    tokenizer.train_from_iterator(counted.parts(source, json.loads(tokenizer.to_str())), trainer)
    if not counted.used_bytes:
        raise UserError(f"{source.what} holds no text to train a tokenizer on", code="no-text")
    tokenizer.add_special_tokens([END_OF_TEXT])
    reached = tokenizer.get_vocab_size()
    if reached < vocab_size:
        log(f"{reached:,} ids instead of {vocab_size:,}: no other pair occurs twice in this text")
    atomic_files.write_text(path, tokenizer.to_str(pretty=True))
    return reached, counted.used_bytes


class _Counted:
    """Hands out the text in parts and counts their bytes."""

    used_bytes = 0

    def parts(self, source: Inputs, definition: dict[str, Any]) -> Iterator[str]:
        """Every n-th part where the text is longer than TRAINING_BYTES; words are never cut."""
        every = max(1, -(-(source.total_bytes or 0) // TRAINING_BYTES))
        number = 0
        errors = source.options["errors"]
        for block in make_blocks(source.chunks(), cut_rule(definition), _PART_BYTES, errors=errors):
            for chunk in block.chunks:
                if number % every == 0:
                    self.used_bytes += len(chunk.data)
                    try:
                        yield chunk.data.decode("utf-8", source.options["errors"])
                    except UnicodeDecodeError:
                        raise not_utf8([chunk]) from None
                number += 1


def _read_record(folder: Path) -> dict[str, Any] | None:
    try:
        return atomic_files.read_object(folder / _RECORD)
    except ValueError:
        return None
