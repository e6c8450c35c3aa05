"""What turns text into ids: one small interface. `engines` lists those that there are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from data_loading.tokenizers.tokenizer import DefinedTokenizer
from memory.process import read_process

if TYPE_CHECKING:
    import numpy as np

    from data_loading.tokenizers.tokenizer import Tokenizer


class Unsupported(ValueError):
    """Why an engine cannot encode with a tokenizer."""


class Engine(ABC):
    """Encodes texts with one tokenizer, made from the text of its tokenizer.json.

    An object costs nothing until `load` or its first text. It gives exactly the ids of Hugging
    Face's own tokenizer, or it is not used (see `parity`).

    definition: from which another process makes the same engine.

    name, version: for the manifest.
    block_bytes: text worth handing over at once; bounds the memory of one call.
    parallel_from: bytes of text from which several threads encode; None: never.
    thread_bytes: text after which a thread that encodes is replaced, because what the engine keeps for each
        thread grows; None: never.
    most_bytes: that a thread with it holds, in anonymous memory, whatever the text.
    """

    name: str
    block_bytes: int = 1 << 20
    parallel_from: int | None = 8 << 20
    thread_bytes: int | None = None
    most_bytes: int = 300 << 20

    def __init__(self, definition: str) -> None:
        self._definition = definition
        self._loading = Lock()

    @property
    def definition(self) -> str:
        return self._definition

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """The engine of this tokenizer, not yet loaded. Raises Unsupported."""
        if not isinstance(tokenizer, DefinedTokenizer):
            raise Unsupported("it needs a tokenizer.json")
        return cls(tokenizer.json)

    @classmethod
    def refuses(cls, tokenizer: Tokenizer) -> str | None:
        """Why this engine cannot encode with the tokenizer; None when it can. Loads it to know."""
        try:
            cls.of(tokenizer).load()
        except Unsupported as why:
            return str(why)
        return None

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """(ids of all texts one after another, uint32; how many each text has, int64).

        Raises UnicodeDecodeError, with the position in its text, where one is not UTF-8.
        """

    @abstractmethod
    def _load(self) -> Any:
        """What encodes: the tokenizer of the package behind this engine. Raises Unsupported."""

    def load(self) -> None:
        """Load it now, once if several threads ask for it. Raises Unsupported."""
        with self._loading:
            self._tokenizer  # noqa: B018

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load()


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind; 0 where the system does not tell."""
    found = read_process(os.getpid())
    return (found.anon_bytes or 0) if found else 0
