"""The engine of the package fastokens: byte-pair encoding only, with caches of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.engine import Unsupported
from data_loading.pretokenizer.fast_engine import FastEngine, check_spelled, splits_by
from data_loading.tokenizer import JsonTokenizer, Tokenizer


class FastokensEngine(FastEngine):
    """The usual one. About 260 MB a process when its caches are full, more while it encodes a long run."""

    name = "fastokens"
    most_bytes = 400 << 20

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        engine = super().of(tokenizer)
        if isinstance(tokenizer, JsonTokenizer) and not splits_by(tokenizer.json, "ByteLevel"):
            check_spelled(tokenizer.definition["model"])
        return engine

    @property
    def version(self) -> str:
        return metadata.version("fastokens")

    def _load(self) -> Any:
        """Takes a quarter of a second for GPT-2."""
        try:
            import fastokens
        except ImportError:
            raise Unsupported("it is not installed (pip install fastokens)") from None
        try:
            return fastokens.Tokenizer.from_json_str(self._definition)
        except ValueError as error:
            raise Unsupported(str(error)) from None

    def _doubtful_characters(self) -> str:
        # U+180E was a space until Unicode 6.3, and still is one for the reference's regular expressions.
        # U+017F is an s where they ignore case, as in (?i:'s).
        if not splits_by(self._definition, "Split"):
            return ""
        return "\u180e\u017f" if "(?i:" in self._definition else "\u180e"

    def _encode(self, texts: Sequence[bytes], decoded: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = self._tokenizer.encode_batch_flat(list(decoded), False, True)
        return np.frombuffer(ids, "<u4"), np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))
