"""The engine of the package gigatoken: byte-pair encoding only, the fastest, and not installed by default.

Its caches grow with the number of different words, without a bound, so it has a mark of memory at
which it is replaced. Random words reach the mark after some 10 MB; real text seldom does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Self

import numpy as np

from data_loading.pretokenizer.engine import Unsupported
from data_loading.pretokenizer.fast_engine import FastEngine, check_spelled, overlap, splits_by
from data_loading.pretokenizer.reference_engine import joined
from data_loading.pretokenizer.split_patterns import splits_by_known_pattern
from data_loading.tokenizer import JsonTokenizer, Tokenizer
from experiment_utils.extras import install_command

_SINCE_UNICODE_17 = (
    "\u088f\u0c5c\u0cdc\u1acf-\u1aff\ua7ce\ua7cf\ua7d2\ua7d4\ua7f1\U00010940-\U0001095f\U00010ec5-\U00010eff"
    "\U00011b60-\U00011bbf\U00011db0-\U00011def\U00016ea0-\U00016eff\U00016ff2-\U00016fff"
    "\U000187f8-\U000187ff\U00018d09-\U00018dff\U0001e6c0-\U0001e6ff\U0002b73a-\U0002b73f"
    "\U0002cea2-\U0002ceaf\U000323b0-\U0003ffff"
)
"""Letters, numbers and marks for gigatoken 0.10, nothing for tokenizers 0.23 (Unicode 16)."""

_PATTERNS = ("ByteLevel", "Split")
"""Pre-tokenizers to which it matters what is a letter."""


class GigatokenEngine(FastEngine):
    """Bytes that are not UTF-8 get ids in silence from it, so they are refused before."""

    name = "gigatoken"
    # While its table of words doubles, the old one and the new one lie side by side: a worker of
    # this mark peaks at some 220 MB.
    recycle_bytes = 96 << 20

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        engine = super().of(tokenizer)
        if isinstance(tokenizer, JsonTokenizer):
            _check_pre_tokenizer(tokenizer.definition.get("pre_tokenizer"))
            _check_added_tokens(tokenizer.definition)
            if splits_by(tokenizer.json, "ByteLevel"):
                _check_bytes(tokenizer.definition)
            else:
                check_spelled(tokenizer.definition["model"])
                if tokenizer.definition["model"].get("ignore_merges"):
                    raise Unsupported("it does not heed ignore_merges without ByteLevel")
            if tokenizer.definition.get("normalizer") and splits_by(tokenizer.json, *_PATTERNS):
                raise Unsupported("its normalizer follows another version of Unicode than the reference")
        return engine

    @property
    def version(self) -> str:
        return metadata.version("gigatoken")

    def _load(self) -> Any:
        try:
            from gigatoken.gigatoken_rs import load_hf_json
        except ImportError:
            raise Unsupported(f"it is not installed ({install_command('gigatoken')})") from None
        try:
            return load_hf_json(_without_special_tokens(self._definition))
        except (RuntimeError, ValueError) as error:
            raise Unsupported(str(error).partition("\n")[0]) from None

    def _doubtful_characters(self) -> str:
        return _SINCE_UNICODE_17 if splits_by(self._definition, *_PATTERNS) else ""

    def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        if self.worn:
            self.renew()
        return super().encode_batch(texts)

    def _encode(self, texts: Sequence[bytes], decoded: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return joined([self._tokenizer.encode(text) for text in texts])


def _without_special_tokens(definition: str) -> str:
    """The text of a special token that it knows becomes the id; of one that it does not, stays text."""
    parsed = json.loads(definition)
    parsed["added_tokens"] = [t for t in parsed.get("added_tokens") or [] if not t.get("special")]
    return json.dumps(parsed, ensure_ascii=False)


def _check_pre_tokenizer(step: dict[str, Any] | None) -> None:
    """It passes over what it does not know of a sequence; only these shapes were proved."""
    if step is None or step["type"] == "Metaspace":
        return
    if step["type"] == "ByteLevel" and step.get("use_regex", True):
        return
    steps = step.get("pretokenizers", [step])
    kinds = [part["type"] for part in steps]
    if kinds == ["Metaspace"]:
        return
    if kinds == ["Split", "ByteLevel"]:
        split, spelled = steps
        if splits_by_known_pattern(split) and not any(
            spelled.get(flag, True) for flag in ("add_prefix_space", "use_regex")
        ):
            return
    raise Unsupported(f"the pre-tokenizer {', '.join(kinds)} is not one that it was held against")


def _check_bytes(definition: dict[str, Any]) -> None:
    """It takes a character of the text for a token of that name, which ByteLevel spells otherwise."""
    from tokenizers.pre_tokenizers import ByteLevel

    spelled = {*ByteLevel.alphabet(), *(token["content"] for token in definition.get("added_tokens") or [])}
    for token in definition["model"]["vocab"]:
        if len(token) == 1 and token not in spelled:
            raise Unsupported(f"{token!r} stands in its vocabulary, and no byte is spelled so")


def _check_added_tokens(definition: dict[str, Any]) -> None:
    """What the reference heeds and gigatoken does not.

    An added token is not found where it overlaps with the text of a special one, nor, with `single_word`,
    inside of a word.
    """
    added = definition.get("added_tokens") or []
    special = [token["content"] for token in added if token.get("special")]
    for token in added:
        content = token["content"]
        if not token.get("special") and any(overlap(content, other) for other in special):
            raise Unsupported(f"the added token {content!r} can overlap with a special token")
        if not token.get("special") and token.get("single_word"):
            raise Unsupported(f"the added token {content!r} is one for whole words only (single_word)")
