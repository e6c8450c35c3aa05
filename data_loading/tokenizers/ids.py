"""The tokenizer of tokens that have no text: an id is written as the number it is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_loading.tokenizers.cutting.cuts import CutRule
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import numpy as np

IDS = "ids"


class IdsTokenizer(Tokenizer):
    """`17 3 5` for the ids 17, 3, 5. Its vocabulary is that of the set whose ids they are."""

    name = IDS
    eot_id = None
    cut_rule = CutRule(why_none="it writes ids as numbers")

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.content_hash = hashlib.sha256(f"ids 0 to {vocab_size - 1}".encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """Raises UserError: something else than numbers of the vocabulary."""
        import numpy as np

        words = text.split()
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) < self.vocab_size):
                raise UserError(
                    f"{word!r} is no id: expected numbers from 0 to {self.vocab_size - 1:,}",
                    code="id-invalid",
                )
        return np.array([int(word) for word in words], np.uint32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return " ".join(str(int(i)) for i in ids)

    def save(self, folder: Path) -> None:
        """Raises UserError: no set is made with it, since no text is."""
        raise UserError(
            "tokenizer ids has no files: it goes with tokens that were not made from a text",
            code="ids-without-files",
        )
