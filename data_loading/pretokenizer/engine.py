"""What turns text into ids: one small interface. `engines` lists those that there are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from data_loading.tokenizer import JsonTokenizer
from memory.process import read_process

if TYPE_CHECKING:
    import numpy as np

    from data_loading.tokenizer import Tokenizer


class Unsupported(ValueError):
    """Why an engine cannot encode with a tokenizer."""


class Unencodable(ValueError):
    """The package behind an engine fails at a text. number: of it in its batch. offset: bytes into it."""

    def __init__(self, number: int, offset: int, why: str) -> None:
        self.number, self.offset = number, offset
        super().__init__(why)


class Engine(ABC):
    """Encodes texts with one tokenizer, made from the text of its tokenizer.json.

    An object costs nothing until `load` or its first text. It gives exactly the ids of Hugging
    Face's own tokenizer, or it is not used (see `parity`).

    definition: from which another process makes the same engine.

    name, version: for the manifest.
    block_bytes: text worth handing over at once; bounds the memory of one call.
    parallel_from: bytes of text from which worker processes pay for their start; None: never.
    recycle_bytes: what the process may have grown by since the engine was loaded, in anonymous
        memory, before the engine has to be replaced; None: its memory is bounded by itself.
    most_bytes: that a process with it holds, in anonymous memory, whatever the text.
    """

    name: str
    block_bytes: int = 1 << 20
    parallel_from: int | None = 8 << 20
    recycle_bytes: int | None = None
    most_bytes: int = 300 << 20

    def __init__(self, definition: str) -> None:
        self._definition = definition

    @property
    def definition(self) -> str:
        return self._definition

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """The engine of this tokenizer, not yet loaded. Raises Unsupported."""
        if not isinstance(tokenizer, JsonTokenizer):
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
        """Load it now. Raises Unsupported."""
        self._tokenizer  # noqa: B018

    @cached_property
    def _tokenizer(self) -> Any:
        loaded = self._load()
        self._anon_at_load = anonymous_bytes()
        return loaded

    @property
    def worn(self) -> bool:
        """It has grown by more than `recycle_bytes`: a worker process hands over to a fresh one."""
        if self.recycle_bytes is None or "_tokenizer" not in self.__dict__:
            return False
        return anonymous_bytes() - self._anon_at_load > self.recycle_bytes

    def renew(self) -> None:
        """Let go of all that is loaded; the next text loads it anew."""
        self.__dict__.pop("_tokenizer", None)


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind; 0 where the system does not tell."""
    found = read_process(os.getpid())
    return (found.anon_bytes or 0) if found else 0
