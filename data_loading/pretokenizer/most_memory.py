"""The most memory that a tokenization takes, whatever the text: what a job of a cluster asks for."""

from __future__ import annotations

from data_loading.pretokenizer.bytes_engine import BytesEngine
from data_loading.pretokenizer.engine import Engine
from data_loading.pretokenizer.engines import ENGINES, REFERENCE, kind_to_compare
from data_loading.tokenizer import DefinedTokenizer, Tokenizer

OWN_BYTES = 200 << 20
"""Without what each thread holds: the interpreter, the tokenizer's tables, blocks of text that wait."""


def most_memory_bytes(tokenizer: Tokenizer, engine: str, workers: int) -> int:
    """Bound of the anonymous memory of the process.

    Args:
        tokenizer: Of the text.
        engine: Its name, or auto. The reference takes over if its ids differ from the reference's.
        workers: Threads that encode; 0: one.

    Raises:
        UserError: no engine of that name.
    """
    side_by_side = max(1, workers)
    kind = kind_to_compare(tokenizer, engine)
    reference = ENGINES[REFERENCE].most_bytes
    if kind is None:
        return OWN_BYTES + side_by_side * _alone(tokenizer).most_bytes
    compared = side_by_side * kind.most_bytes + reference
    return OWN_BYTES + max(compared, side_by_side * reference)


def _alone(tokenizer: Tokenizer) -> type[Engine]:
    """The engine that is taken without a comparison."""
    return ENGINES[REFERENCE] if isinstance(tokenizer, DefinedTokenizer) else BytesEngine
