"""Bytes of text that each id encodes, to compare losses of different tokenizers.

They are not known for a tokenizer that changes the text before it splits it, such as by lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from data_loading.tokenizers.cutting.cuts import steps_of
from data_loading.tokenizers.ids import IdsTokenizer
from data_loading.tokenizers.tiktoken import TiktokenTokenizer
from data_loading.tokenizers.tokenizer import BYTES_EOT, BytesTokenizer, JsonTokenizer, Tokenizer, vocabulary

if TYPE_CHECKING:
    import numpy as np

SPACE_AS = "\u2581"
"""The space in the pieces of SentencePiece."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_KEEPS_THE_TEXT = ("NFC", "Prepend", "Replace")
"""Normalizers that keep the number of bytes, but for composed accents (NFC) and a space before each document
(Prepend). Replace: only of a space by SPACE_AS."""


def bytes_per_id(tokenizer: Tokenizer) -> np.ndarray | None:
    """Bytes of UTF-8 text by id, int64 `(vocab_size,)`; 0 for a special token, such as the end of text.

    None if that is not known.
    """
    import numpy as np

    if isinstance(tokenizer, BytesTokenizer):
        found = np.ones(tokenizer.vocab_size, np.int64)
        found[BYTES_EOT] = 0
        return found
    if isinstance(tokenizer, IdsTokenizer):
        return None
    lengths = _lengths(tokenizer)
    if lengths is None:
        return None
    found = np.zeros(tokenizer.vocab_size, np.int64)
    for number, length in lengths:
        found[number] = length
    return found


def _lengths(tokenizer: Tokenizer) -> Iterator[tuple[int, int]] | None:
    if isinstance(tokenizer, TiktokenTokenizer):
        return ((number, len(token)) for number, token in tokenizer.text_tokens.items())
    if isinstance(tokenizer, JsonTokenizer):
        return _of_json(tokenizer.definition)
    return None


def _of_json(definition: dict[str, Any]) -> Iterator[tuple[int, int]] | None:
    if not all(map(_keeps_the_text, steps_of(definition.get("normalizer"), "normalizers"))):
        return None
    steps = steps_of(definition.get("pre_tokenizer"), "pretokenizers")
    kinds = {step["type"] for step in [*steps, *steps_of(definition.get("decoder"), "decoders")]}
    if "ByteLevel" in kinds:
        return _pieces(definition, len)  # each character of a piece is one byte
    if definition["model"].get("byte_fallback") and "WhitespaceSplit" not in kinds:
        return _pieces(definition, _of_sentence_piece)
    return None  # characters that it does not know are lost


def _keeps_the_text(part: dict[str, Any]) -> bool:
    if part["type"] == "Replace":
        return part.get("pattern") == {"String": " "} and part.get("content") == SPACE_AS
    return part["type"] in _KEEPS_THE_TEXT


def _of_sentence_piece(piece: str) -> int:
    return 1 if _BYTE.fullmatch(piece) else len(piece.replace(SPACE_AS, " ").encode())


def _pieces(definition: dict[str, Any], length_of: Callable[[str], int]) -> Iterator[tuple[int, int]]:
    added = {token["content"]: token for token in definition.get("added_tokens") or []}
    for piece, number in vocabulary(definition).items():
        if piece not in added:
            yield number, length_of(piece)
        elif not added[piece].get("special"):
            yield number, len(piece.encode())
