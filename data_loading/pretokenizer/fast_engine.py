"""What the fast engines share: the few characters that they see differently go to the reference.

Which characters are letters, numbers, spaces or combining marks is said by a version of Unicode, and
that of an engine may be another one than the reference's. Such characters are known by trying all
of Unicode. A text that has one is divided at safe cuts: the words around the character are encoded
by the reference, all else by the engine.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.cuts import CutRule, cut_rule, first_cut, last_cut
from data_loading.pretokenizer.engine import Engine, Unsupported
from data_loading.pretokenizer.reference_engine import ReferenceEngine, joined
from data_loading.tokenizer import JsonTokenizer, Tokenizer, model_type

_ASCII = bytes(range(128))
_FEW = 2
"""Characters that are faster searched for one by one."""


class FastEngine(Engine):
    """An engine that is exact but for some characters."""

    block_bytes = 1 << 19

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        engine = super().of(tokenizer)
        if isinstance(tokenizer, JsonTokenizer):
            _check_order(tokenizer.definition.get("added_tokens") or [])
        return engine

    @abstractmethod
    def _encode(self, texts: Sequence[bytes], decoded: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode_batch`, of valid UTF-8 without doubtful characters, given in both forms."""

    @abstractmethod
    def _doubtful_characters(self) -> str:
        """Inside of a regular expression's [...]; empty: there are none with this tokenizer."""

    @cached_property
    def _doubtful(self) -> re.Pattern[str] | None:
        return re.compile(f"[{self._class}]") if self._class else None

    @cached_property
    def _class(self) -> str:
        return self._doubtful_characters()

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        decoded = [text.decode() for text in texts]
        if not any(map(self._has_doubtful, texts, decoded)):
            return self._encode(texts, decoded)
        return joined([self._encode_divided(text) for text in texts])

    def _has_doubtful(self, text: bytes, decoded: str) -> bool:
        if self._doubtful is None or decoded.isascii():
            return False
        if len(self._class) <= _FEW:
            return any(character in decoded for character in self._class)
        # Taking the ASCII out first costs a tenth of searching all of it, in most texts.
        return self._doubtful.search(text.translate(None, _ASCII).decode()) is not None

    def _encode_divided(self, text: bytes) -> np.ndarray:
        ids = [np.empty(0, np.uint32)]
        for start, stop, doubtful in self._parts(text):
            part = text[start:stop]
            found = (
                self._reference.encode_batch([part]) if doubtful else self._encode([part], [part.decode()])
            )
            ids.append(found[0])
        return np.concatenate(ids)

    def _parts(self, text: bytes) -> Iterator[tuple[int, int, bool]]:
        """(start, stop, whether for the reference): the whole text, divided at safe cuts only."""
        done = 0
        for place in self._doubtful_places(text):
            if place < done:
                continue
            start = stop = None
            if self._cut_rule.exists and not self._cut_rule.drop_space:
                start = last_cut(text, self._cut_rule, done, place)
                stop = first_cut(text, self._cut_rule, place)
            if start is not None:
                yield done, start, False
            stop = len(text) if stop is None else stop
            yield done if start is None else start, stop, True
            done = stop
        if done < len(text):
            yield done, len(text), False

    def _doubtful_places(self, text: bytes) -> Iterator[int]:
        """Byte offsets."""
        decoded, at, offset = text.decode(), 0, 0
        for match in self._doubtful.finditer(decoded) if self._doubtful else ():
            offset += len(decoded[at : match.start()].encode())
            at = match.start()
            yield offset

    @cached_property
    def _cut_rule(self) -> CutRule:
        return cut_rule(json.loads(self._definition))

    @cached_property
    def _reference(self) -> ReferenceEngine:
        return ReferenceEngine(self._definition)


def _check_order(added: list[dict[str, Any]]) -> None:
    """The reference looks for the tokens with `normalized` behind all others, the engines for the longest.

    So a token for whole words may stand at an edge that another one, taken out before, has left.
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
            if overlap(first, second):
                raise Unsupported(
                    f"the added tokens {first!r} and {second!r} can overlap, and one has `normalized`"
                )


def splits_by(definition: str, *kinds: str) -> bool:
    """A pre-tokenizer of one of these kinds is in the tokenizer.json."""
    if not any(f'"{kind}"' in definition for kind in kinds):
        return False  # parsing takes 20 ms
    step = json.loads(definition).get("pre_tokenizer") or {}
    return any(part.get("type") in kinds for part in [step, *step.get("pretokenizers", [])])


def overlap(one: str, other: str) -> bool:
    """Some text holds both in such a way that they share a character."""
    if one in other or other in one:
        return True
    shorter = min(len(one), len(other))
    return any(one.endswith(other[:n]) or other.endswith(one[:n]) for n in range(1, shorter))


def check_spelled(model: dict[str, Any]) -> None:
    """fastokens and gigatoken take a whole piece of text that is spelled like a token for that token, though
    no merge makes it, where one of its characters is none by itself: a special token in the text would become
    its id. With ByteLevel they refuse by themselves a vocabulary that lacks a byte.

    Raises:
        Unsupported: of a BPE model; others they refuse by themselves.
    """
    if model_type({"model": model}) != "BPE":
        return
    vocab = model["vocab"]
    for character in sorted(set().union(*vocab)):
        if character not in vocab:
            raise Unsupported(f"the character {character!r} stands in a token of its vocabulary, and is none")
