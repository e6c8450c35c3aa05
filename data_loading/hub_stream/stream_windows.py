"""Windows of a stream of documents: packed end to end, then drawn from a buffer; resumes exactly."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from data_loading.hub_stream.encode import Encode
from data_loading.hub_stream.stream_documents import digest
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

_DRAWS = 4096


PARTS = frozenset(("place", "digest", "carry", "offset", "held", "buffer", "draws"))
"""Keys of a state."""


class Texts(Protocol):
    """Documents, one after another; see `stream_documents.StreamDocuments`."""

    place: dict[str, Any] | None

    def next(self) -> str | None: ...


@dataclass(frozen=True)
class WindowCut:
    """Cut of a stream into windows, and the order of these."""

    width: int
    """Tokens of a window."""
    step: int
    """Tokens from one window to the next."""
    buffer: int
    """Windows that one is drawn from; 1: their own order."""
    seeds: tuple[int, ...]
    """Seeds of the draws."""


class WindowStream:
    """Windows `(width,)` until the documents end.

    Documents are end to end, each with an end-of-text id after it. Tokens at the end that fill no window are
    dropped. The state is the place of the last document, how far it is cut, the rest before it, and the
    buffer: it does not grow with the stream.
    """

    def __init__(
        self,
        texts: Texts,
        tokenizer: Tokenizer,
        cut: WindowCut,
        state: dict[str, Any] | None = None,
        encode: Encode | None = None,
    ) -> None:
        """Begin at a state, or at the first document.

        Args:
            texts: Documents; with a state, from the document of `state["place"]` on.
            tokenizer: Of the stream.
            cut: Windows.
            state: As `state()` returned it.
            encode: Returns the ids of the tokenizer; None: the tokenizer itself.

        Raises:
            UserError: the document there is another one.
        """
        self._texts, self._tokenizer, self._cut = texts, tokenizer, cut
        self._encode = encode or tokenizer.encode
        self.dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
        self._buffer = np.empty((cut.buffer, cut.width), self.dtype)
        self._held = self._draws = 0
        self._carry = self._pending = np.empty(0, self.dtype)
        self._offset, self._digest = 0, b""
        self._drawn: tuple[int, np.ndarray] | None = None
        if state is not None:
            self._restore(state)

    @property
    def left_tokens(self) -> int:
        """Tokens that fill no window yet."""
        return max(len(self._pending) - self._offset, 0)

    def next(self) -> np.ndarray | None:
        """Return the next window; None at the end."""
        while self._held < self._cut.buffer and (window := self._cut_next()) is not None:
            self._buffer[self._held] = window
            self._held += 1
        if self._held == 0:
            return None
        chosen = self._draw() % self._held
        window = self._buffer[chosen].copy()
        self._held -= 1
        self._buffer[chosen] = self._buffer[self._held]
        return window

    def _cut_next(self) -> np.ndarray | None:
        while len(self._pending) - self._offset < self._cut.width:
            text = self._texts.next()
            if text is None:
                return None
            self._carry = self._pending[self._offset :].copy()
            self._begin(text)
            self._offset = 0
        window = self._pending[self._offset : self._offset + self._cut.width]
        self._offset += self._cut.step
        return window

    def _begin(self, text: str) -> None:
        self._digest = digest(text.encode())
        ids = self._encode(text).astype(self.dtype)
        end = [] if self._tokenizer.eot_id is None else [self._tokenizer.eot_id]
        self._pending = np.concatenate([self._carry, ids, np.array(end, self.dtype)])

    def _draw(self) -> int:
        """Return a draw, which is a function of its number: a state needs no generator."""
        if self._cut.buffer == 1:
            return 0
        block, inside = divmod(self._draws, _DRAWS)
        self._draws += 1
        if self._drawn is None or self._drawn[0] != block:
            generator = np.random.default_rng([*self._cut.seeds, block])
            self._drawn = block, generator.integers(0, 2**62, _DRAWS)
        return int(self._drawn[1][inside])

    def state(self) -> dict[str, Any]:
        """Return the position, as plain values for JSON."""
        return {
            "place": self._texts.place if len(self._digest) else None,
            "digest": self._digest.hex(),
            "carry": _text_of(self._carry),
            "offset": self._offset,
            "held": self._held,
            "buffer": _text_of(self._buffer[: self._held]),
            "draws": self._draws,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._held, self._draws = state["held"], state["draws"]
        windows = _array_of(state["buffer"], self.dtype).reshape(self._held, self._cut.width)
        self._buffer[: self._held] = windows
        if state["place"] is None:
            return
        text = self._texts.next()
        if text is None or digest(text.encode()).hex() != state["digest"]:
            raise UserError(
                "the document at the position of the checkpoint is gone: the dataset has changed. Restore "
                "the dataset, or start a new run",
                code="stream-changed",
            )
        self._carry = _array_of(state["carry"], self.dtype)
        self._begin(text)
        self._offset = state["offset"]


def _text_of(array: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 1)).decode()


def _array_of(text: str, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)
