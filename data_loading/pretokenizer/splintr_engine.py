"""The engine of the package splintr-rs: Unigram models (SentencePiece's), and not installed by default."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.engine import Unsupported
from data_loading.pretokenizer.fast_engine import FastEngine
from data_loading.pretokenizer.reference_engine import joined
from data_loading.pretokenizer.splintr_support import (
    BYTE_PIECES,
    UNKNOWN,
    definition_for_splintr,
    doubtful_characters,
)
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from experiment_utils.extras import install_command

_PACKAGE = "splintr-rs"
_VERSION = "0.22.0"
"""The one whose exceptions are known."""


@dataclass(frozen=True)
class _Loaded:
    """unknown: the id of the unknown token. fuses: (ids,), that and the bytes that stand for such a token.

    doubtful: characters, inside of a regular expression's [...].
    """

    tokenizer: Any
    unknown: int
    fuses: np.ndarray
    doubtful: str


class SplintrEngine(FastEngine):
    """The usual one for Unigram models where it is installed. It has no caches that grow.

    A process holds some 100 MB; with a vocabulary of 250,000 tokens 210 MB (300 MB while it loads), and
    280 MB more once a word had to go to the reference.
    """

    name = "splintr"
    most_bytes = 600 << 20

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        engine = super().of(tokenizer)
        if isinstance(tokenizer, JsonTokenizer):
            definition_for_splintr(tokenizer.definition)
        _check_installed()
        return engine

    @property
    def version(self) -> str:
        return metadata.version(_PACKAGE)

    def _load(self) -> _Loaded:
        definition = definition_for_splintr(json.loads(self._definition))
        _check_installed()
        import splintr

        model, wanted = definition["model"], {UNKNOWN, *BYTE_PIECES}
        fuses = np.array([index for index, (piece, _) in enumerate(model["vocab"]) if piece in wanted])
        try:
            loaded = splintr.from_json_bytes(json.dumps(definition, ensure_ascii=False).encode())
        except (RuntimeError, ValueError) as error:
            raise Unsupported(str(error).partition("\n")[0]) from None
        return _Loaded(loaded, model["unk_id"], fuses, doubtful_characters(definition))

    def _doubtful_characters(self) -> str:
        return self._tokenizer.doubtful

    def _encode(self, texts: Sequence[bytes], decoded: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return joined([self._encode_one(*both) for both in zip(texts, decoded, strict=True)])

    def _encode_one(self, text: bytes, decoded: str) -> np.ndarray:
        ids = np.frombuffer(self._tokenizer.tokenizer.encode_flat(decoded), "<u4")
        return self._reference.encode_batch([text])[0] if self._has_fused(ids) else ids

    def _has_fused(self, ids: np.ndarray) -> bool:
        """`<unk>` written out stands beside something unknown: the reference makes one token of both."""
        unknown = ids == self._tokenizer.unknown
        if not unknown.any():
            return False
        fuses = np.isin(ids, self._tokenizer.fuses)
        return bool((unknown[1:] & fuses[:-1] | unknown[:-1] & fuses[1:]).any())


def _check_installed() -> None:
    if util.find_spec("splintr") is None:
        raise Unsupported(f"it is not installed ({install_command('splintr')})")
    if (found := metadata.version(_PACKAGE)) != _VERSION:
        raise Unsupported(f"{_PACKAGE} {found} is not known well enough ({install_command('splintr')})")
