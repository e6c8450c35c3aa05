"""The interface of an engine, which turns texts into ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from data_loading.tokenizers.tokenizer import DefinedTokenizer

if TYPE_CHECKING:
    import numpy as np

    from data_loading.tokenizers.tokenizer import Tokenizer


class Unsupported(ValueError):
    """An engine cannot encode with a tokenizer. The message says why."""


class Engine(ABC):
    """Encodes texts with one tokenizer.

    Creating an engine is cheap: `load` or the first text loads it. Its ids are exactly those of Hugging
    Face's own tokenizer, or it is not used (see `parity`).
    """

    name: str
    """In the manifest, next to `version`."""
    block_bytes: int = 1 << 20
    """Text for one call. Bounds the memory of the call."""
    parallel_from: int | None = 8 << 20
    """Bytes of text from which several threads encode; None: never."""
    thread_bytes: int | None = None
    """Text after which an encoding thread is replaced, since the memory of a thread grows; None: never."""
    most_bytes: int = 300 << 20
    """Bound of the anonymous memory that one thread holds, whatever the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._source = tokenizer
        self._loading = Lock()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Create the engine of this tokenizer, not yet loaded. Raises Unsupported."""
        if not isinstance(tokenizer, DefinedTokenizer):
            raise Unsupported("it needs a tokenizer.json")
        return cls(tokenizer)

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Encode UTF-8 texts.

        Returns:
            The ids of all texts one after another, uint32, and the number of ids of each text, int64.

        Raises:
            UnicodeDecodeError: A text is not UTF-8, with the position in it.
        """

    @abstractmethod
    def _load(self) -> Any:
        """Create the object that encodes. Raises Unsupported."""

    def load(self) -> None:
        """Load it now, once if several threads ask for it. Raises Unsupported."""
        with self._loading:
            self._tokenizer  # noqa: B018

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load()
