"""The engine of the package fastokens: byte-pair encoding only, with caches of bounded size.

It differs from the reference at a few known places of a text: characters that an older Unicode classed
differently, and the end of a text with tiktoken's cl100k. A text with such a place is divided at safe cuts:
the reference encodes the words around the place, fastokens the rest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import metadata
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.reference import ReferenceEngine, joined
from data_loading.tokenizers.cutting.cuts import first_cut, last_cut, steps_of
from data_loading.tokenizers.cutting.split_patterns import CL100K_OF_LLAMA, CL100K_PATTERN
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer, model_type

_WHITESPACE_OF_LLAMA = json.dumps(CL100K_OF_LLAMA)
_WHITESPACE_TO_THE_END = json.dumps(CL100K_PATTERN)
_NOT_INSTALLED = "it is not installed (pip install fastokens)"


class FastokensEngine(Engine):
    """The default engine. Threads share its tables; each has a cache, of about 60 MB after `thread_bytes`."""

    name = "fastokens"
    block_bytes = 1 << 19
    thread_bytes = 64 << 20
    most_bytes = 200 << 20
    _source: DefinedTokenizer

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        engine = super().of(tokenizer)
        definition = engine._source.definition
        _check_order(definition.get("added_tokens") or [])
        if "ByteLevel" not in engine._pre_tokenizers:
            _check_spelled(definition["model"])
        return engine

    @property
    def version(self) -> str:
        try:
            return metadata.version("fastokens")
        except metadata.PackageNotFoundError:
            raise Unsupported(_NOT_INSTALLED) from None

    def _load(self) -> Any:
        """Takes a quarter of a second for GPT-2."""
        # A call works in the thread of its caller: the threads are ours.
        os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        try:
            import fastokens
        except ImportError:
            raise Unsupported(_NOT_INSTALLED) from None
        # Patterns that it knows by their spelling are matched eight times as fast as others.
        known = self._source.json.replace(_WHITESPACE_TO_THE_END, _WHITESPACE_OF_LLAMA)
        try:
            return fastokens.Tokenizer.from_json_str(known)
        except ValueError as error:
            raise Unsupported(str(error)) from None

    @cached_property
    def _doubtful(self) -> str:
        """The characters at which it differs."""
        # U+180E was a space until Unicode 6.3, and still is one for the reference's regular expressions.
        # U+017F is an s where they ignore case, as in (?i:'s).
        if "Split" not in self._pre_tokenizers:
            return ""
        return "\u180e\u017f" if "(?i:" in self._source.json else "\u180e"

    @cached_property
    def _takes_whitespace_at_end(self) -> bool:
        return _WHITESPACE_TO_THE_END in self._source.json

    @cached_property
    def _pre_tokenizers(self) -> set[str]:
        """Their types."""
        return {
            step["type"] for step in steps_of(self._source.definition.get("pre_tokenizer"), "pretokenizers")
        }

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        decoded = [text.decode() for text in texts]
        if not any(map(self._differs, decoded)):
            return self._encode(decoded)
        return joined([self._encode_divided(text) for text in texts])

    def _encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = self._tokenizer.encode_batch_flat(texts, False, True)
        return np.frombuffer(ids, "<u4"), np.diff(np.frombuffer(offsets, "<u8").astype(np.int64))

    def _differs(self, text: str) -> bool:
        at_characters = not text.isascii() and any(character in text for character in self._doubtful)
        return at_characters or self._differs_at_end(text)

    def _differs_at_end(self, text: str) -> bool:
        """The whitespace at the end has a line feed, and more whitespace behind it."""
        if not self._takes_whitespace_at_end or not text[-1:].isspace() or text[-1] in "\r\n":
            return False
        end = text[len(text.rstrip()) :]
        return "\n" in end or "\r" in end

    def _encode_divided(self, text: bytes) -> np.ndarray:
        ids = [np.empty(0, np.uint32)]
        for start, stop, is_doubtful in self._parts(text):
            part = text[start:stop]
            found = self._reference.encode_batch([part]) if is_doubtful else self._encode([part.decode()])
            ids.append(found[0])
        return np.concatenate(ids)

    def _parts(self, text: bytes) -> Iterator[tuple[int, int, bool]]:
        """(start, stop, whether for the reference): the whole text, divided at safe cuts only."""
        done = 0
        for place in self._doubtful_places(text):
            if place < done:
                continue
            start = stop = None
            rule = self._source.cut_rule
            if rule.exists and not rule.drop_space:
                start = last_cut(text, rule, done, place)
                stop = first_cut(text, rule, place)
            if start is not None:
                yield done, start, False
            stop = len(text) if stop is None else stop
            yield done if start is None else start, stop, True
            done = stop
        if done < len(text):
            yield done, len(text), False

    def _doubtful_places(self, text: bytes) -> Iterator[int]:
        """Byte offsets, ascending."""
        decoded, at, offset = text.decode(), 0, 0
        for match in re.finditer(f"[{self._doubtful}]", decoded) if self._doubtful else ():
            offset += len(decoded[at : match.start()].encode())
            at = match.start()
            yield offset
        if self._differs_at_end(decoded):
            yield len(decoded.rstrip().encode())

    @cached_property
    def _reference(self) -> ReferenceEngine:
        return ReferenceEngine(self._source)


def _check_order(added: list[dict[str, Any]]) -> None:
    """Raise Unsupported if the order in which added tokens are looked for can matter.

    The reference looks for the tokens with `normalized` after all others, fastokens for the longest. So a
    token for whole words can be at an edge that another token, removed before, has left.
    """
    contents = {
        flag: [t["content"] for t in added if bool(t.get("normalized")) == flag] for flag in (False, True)
    }
    if all(contents.values()) and (whole := [t["content"] for t in added if t.get("single_word")]):
        raise Unsupported(
            f"the added token {whole[0]!r} is one for whole words, and others have `normalized`"
        )
    for first in contents[False]:
        for second in contents[True]:
            if _overlap(first, second):
                raise Unsupported(
                    f"the added tokens {first!r} and {second!r} can overlap, and one has `normalized`"
                )


def _overlap(one: str, other: str) -> bool:
    """Whether some text contains both so that they share a character."""
    if one in other or other in one:
        return True
    shorter = min(len(one), len(other))
    return any(one.endswith(other[:n]) or other.endswith(one[:n]) for n in range(1, shorter))


def _check_spelled(model: dict[str, Any]) -> None:
    """Raise Unsupported for a byte-pair vocabulary with a token that has a character which is no token.

    fastokens takes a piece of text that is spelled like such a token for that token, though no merge makes
    it: a special token in the text would become its id. With ByteLevel it refuses these itself.
    """
    if model_type({"model": model}) != "BPE":
        return
    vocab = model["vocab"]
    for character in sorted(set().union(*vocab)):
        if character not in vocab:
            raise Unsupported(f"the character {character!r} is in a token of its vocabulary, and is no token")
