"""The engine of the package tiktoken, for tiktoken's encodings alone: it is the reference for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata, util
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.engine import Engine, Unencodable, Unsupported
from data_loading.pretokenizer.reference_engine import joined
from data_loading.tiktoken_tokenizer import TiktokenTokenizer, encoding_of, ids_of
from data_loading.tokenizer import Tokenizer
from experiment_utils.extras import install_command

_LONG_RUN = 10_000
"""Blanks in a row that are worth naming where tiktoken fails; it bears 999,000."""


class TiktokenEngine(Engine):
    """Without caches: its memory is bounded by the text that it is given at once."""

    name = "tiktoken"
    parallel_from = 4 << 20

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        if not isinstance(tokenizer, TiktokenTokenizer):
            raise Unsupported("it encodes tiktoken's encodings only (--tokenizer tiktoken:NAME)")
        if util.find_spec("tiktoken") is None:
            raise Unsupported(f"it is not installed ({install_command('tiktoken')})")
        return cls(tokenizer.json)

    @property
    def version(self) -> str:
        return metadata.version("tiktoken")

    def _load(self) -> Any:
        return encoding_of(self._definition)

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """As the interface says. Raises Unencodable where tiktoken fails."""
        encoding, parses_special = self._tokenizer
        parts = []
        for number, text in enumerate(texts):
            decoded = text.decode()
            try:
                parts.append(ids_of(encoding, parses_special, decoded))
            except ValueError as why:
                raise _fails(number, decoded, why) from None
        return joined(parts)


def _fails(number: int, text: str, why: ValueError) -> Unencodable:
    longest = max(re.finditer(r"\s+", text), key=lambda run: run.end() - run.start(), default=None)
    count = longest.end() - longest.start() if longest else 0
    if longest is None or count < _LONG_RUN:
        return Unencodable(number, 0, f"tiktoken cannot encode the text that begins here ({why})")
    return Unencodable(
        number,
        len(text[: longest.start()].encode()),
        f"tiktoken cannot encode {count:,} blanks in a row ({why}). --clean normalize makes fewer of them",
    )
