"""What turns text into ids: one small interface, the engines behind it, and the choice between them.

An engine gives exactly the ids of Hugging Face's own tokenizer or it is not used: before the first
block the fast one is compared with that reference on a sample of the very text.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np

from conf import UserError
from data_loading.tokenizer import BytesTokenizer, JsonTokenizer, Tokenizer, reference_tokenizer


class Engine(ABC):
    """Encodes texts with one tokenizer; made from the text of its tokenizer.json.

    name, version: for the manifest.
    block_bytes: text worth handing over at once; bounds the engine's memory.
    parallel_from: bytes of text from which worker processes pay for their start; None: never.
    """

    name: str
    block_bytes: int = 1 << 20
    parallel_from: int | None = 8 << 20

    @abstractmethod
    def __init__(self, definition: str) -> None: ...

    @property
    @abstractmethod
    def version(self) -> str: ...

    @staticmethod
    @abstractmethod
    def refuses(tokenizer: Tokenizer) -> str | None:
        """Why this engine cannot encode with the tokenizer; None when it can."""

    @classmethod
    def supports(cls, tokenizer: Tokenizer) -> bool:
        return cls.refuses(tokenizer) is None

    @abstractmethod
    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """(ids of all texts one after another, uint32; how many each text has, int64).

        Raises UnicodeDecodeError, with the position in its text, where one is not UTF-8.
        """


class BytesEngine(Engine):
    """The identity."""

    name = "bytes"
    block_bytes = 4 << 20
    parallel_from = None

    def __init__(self, definition: str) -> None:
        pass

    @property
    def version(self) -> str:
        return "1"

    @staticmethod
    def refuses(tokenizer: Tokenizer) -> str | None:
        return None if isinstance(tokenizer, BytesTokenizer) else "it encodes bytes only"

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        for text in texts:
            _decode(text)
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32)
        return ids, np.array([len(text) for text in texts], np.int64)


class FastokensEngine(Engine):
    """fastokens: byte-pair encoding only, exact, with caches of bounded size (about 240 MB a process)."""

    name = "fastokens"

    def __init__(self, definition: str) -> None:
        self._tokenizer = _fastokens(definition)

    @property
    def version(self) -> str:
        return metadata.version("fastokens")

    @staticmethod
    def refuses(tokenizer: Tokenizer) -> str | None:
        if not isinstance(tokenizer, JsonTokenizer):
            return "it needs a tokenizer.json"
        try:
            _fastokens(tokenizer.json)
        except ImportError:
            return "it is not installed"
        except ValueError as error:
            return str(error)
        return None

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = self._tokenizer.encode_batch_flat([_decode(text) for text in texts], False, True)
        return np.frombuffer(ids, "<u4"), np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))


@lru_cache(maxsize=1)
def _fastokens(definition: str) -> Any:
    """Takes a quarter of a second for GPT-2. Raises ImportError, ValueError (unsupported)."""
    import fastokens

    return fastokens.Tokenizer.from_json_str(definition)


class ReferenceEngine(Engine):
    """Hugging Face tokenizers: slow, needs some 100 bytes of memory a byte of text, always right."""

    name = "huggingface"
    block_bytes = 1 << 18
    parallel_from = 1 << 20

    def __init__(self, definition: str) -> None:
        # Its own threads would make a later fork (loader workers) warn or hang; processes are ours.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._tokenizer = reference_tokenizer(definition, "the tokenizer")

    @property
    def version(self) -> str:
        return metadata.version("tokenizers")

    @staticmethod
    def refuses(tokenizer: Tokenizer) -> str | None:
        return None if isinstance(tokenizer, JsonTokenizer) else "it needs a tokenizer.json"

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            np.array(encoding.ids, np.uint32)
            for text in texts
            for encoding in self._tokenizer.encode_batch_fast([_decode(text)], add_special_tokens=False)
        ]
        lengths = np.array([len(part) for part in parts], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *parts]), lengths


ENGINES: dict[str, type[Engine]] = {
    "bytes": BytesEngine,
    "fastokens": FastokensEngine,
    "huggingface": ReferenceEngine,
}


@dataclass(frozen=True)
class Choice:
    """The engine taken and, for the manifest, how it was held against the reference."""

    engine: Engine
    facts: dict[str, Any] = field(default_factory=dict)


def make_engine(name: str, tokenizer: Tokenizer) -> Engine:
    """The engine of that name.

    Raises:
        UserError: no such engine, or it cannot encode with this tokenizer.
    """
    if name not in ENGINES:
        raise UserError(f"--engine {name}: choices are auto, {', '.join(ENGINES)}")
    kind = ENGINES[name]
    refusal = kind.refuses(tokenizer)
    if refusal:
        raise UserError(f"--engine {name} cannot encode with tokenizer {tokenizer.name}: {refusal}")
    return kind(tokenizer.json if isinstance(tokenizer, JsonTokenizer) else "")


def choose_engine(
    tokenizer: Tokenizer, samples: Sequence[bytes], log: Callable[[str], None], wanted: str = "auto"
) -> Choice:
    """The engine for a text of which `samples` (UTF-8, cut where the tokenizer may be cut) are parts."""
    if isinstance(tokenizer, BytesTokenizer):
        return _alone(make_engine("bytes" if wanted == "auto" else wanted, tokenizer))
    reference = make_engine("huggingface", tokenizer)
    if wanted == "huggingface":
        return _alone(reference)
    if not tokenizer.cut_rule.exists:
        log(
            f"tokenizer {tokenizer.name} has no known safe cut ({tokenizer.cut_rule.why_none}): each "
            "document is encoded whole, by the reference tokenizer"
        )
        return _alone(reference)
    refusal = FastokensEngine.refuses(tokenizer)
    if refusal and wanted == "auto":
        log(f"encoding with the reference tokenizer: fastokens does not take {tokenizer.name} ({refusal})")
        return _alone(reference)
    fast = make_engine("fastokens" if wanted == "auto" else wanted, tokenizer)
    difference = first_difference(fast, reference, samples)
    compared = sum(map(len, samples))
    if difference is not None:
        log(
            f"WARNING: {fast.name} {fast.version} gives other ids than the reference tokenizer for "
            f"{difference!r} in this text. The reference takes over: slower, exact"
        )
        return Choice(reference, {**_alone(reference).facts, "refused": f"{fast.name} {fast.version}"})
    facts = {"reference": f"huggingface {reference.version}", "compared_bytes": compared}
    return Choice(fast, {**_alone(fast).facts, **facts})


def _alone(engine: Engine) -> Choice:
    return Choice(engine, {"name": engine.name, "version": engine.version})


def first_difference(engine: Engine, reference: Engine, samples: Sequence[bytes]) -> str | None:
    """The first piece of text that the two encode differently; None when all ids are equal."""
    for sample in samples:
        ids, _ = engine.encode_batch([sample])
        expected, _ = reference.encode_batch([sample])
        if not np.array_equal(ids, expected):
            return _narrow(engine, reference, sample)
    return None


def _narrow(engine: Engine, reference: Engine, sample: bytes) -> str:
    """A short part of the sample in which the two still differ, found by halving."""
    text = _decode(sample)
    while len(text) > 40:
        middle = len(text) // 2
        for half in (text[:middle], text[middle:]):
            ids, _ = engine.encode_batch([half.encode()])
            expected, _ = reference.encode_batch([half.encode()])
            if not np.array_equal(ids, expected):
                text = half
                break
        else:
            break
    return text if len(text) <= 80 else text[:80] + "..."


def _decode(text: bytes) -> str:
    return text.decode("utf-8")
