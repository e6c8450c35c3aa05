"""Range of the ids of a set, which must fit a vocabulary."""

from __future__ import annotations

from data_loading.tokens.lazy_array import Values
from experiment_utils.errors import UserError

_BLOCK_IDS = 1 << 22


def read_id_range(tokens: Values) -> tuple[int, int]:
    """Return the smallest id, or 0 if that is smaller, and the largest. Reads all tokens in blocks."""
    smallest = largest = 0
    for start in range(0, len(tokens), _BLOCK_IDS):
        block = tokens[start : start + _BLOCK_IDS]
        smallest, largest = min(smallest, int(block.min())), max(largest, int(block.max()))
    return smallest, largest


def check_id_range(name: str, smallest: int, largest: int, vocab_size: int | None, advice: str = "") -> int:
    """Return the size of the vocabulary: one more than the largest id if it is not known.

    Args:
        name: Path of the ids, and how they are read.
        smallest: Smallest id.
        largest: Largest id.
        vocab_size: Of the tokenizer.
        advice: Another possible cause.

    Raises:
        UserError: An id is outside the vocabulary.
    """
    size = largest + 1 if vocab_size is None else vocab_size
    if smallest < 0 or largest >= size:
        raise UserError(
            f"{name} holds the id {smallest if smallest < 0 else largest:,}, outside the vocabulary of "
            f"{size:,} ids (0 to {size - 1:,}). It was made with another tokenizer: give the one it was made "
            f"with (tokenizer=...){advice}",
            code="id-outside-vocabulary",
        )
    return size
