"""Special tokens written out in a text, such as `<|endoftext|>`: ordinary text, or their ids.

To become ids they need no engine of their own: a tokenizer.json in which they are added tokens like
any other says it to every engine, and to the rule of safe cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from data_loading.tokenizers.tiktoken import TiktokenTokenizer
from data_loading.tokenizers.tokenizer import DefinedTokenizer, JsonTokenizer, Tokenizer
from experiment_utils.errors import UserError

CHOICES = ("text", "parse")
_MOST_PROBED = 500


@dataclass(frozen=True)
class ParsingTokenizer(JsonTokenizer):
    """A tokenizer that reads special tokens in a text. Files and content hash are those of `plain`."""

    special_ids: frozenset[int] = frozenset()
    """Ids of the special tokens."""
    parses_special: bool = True

    @property
    def plain(self) -> JsonTokenizer:
        """The tokenizer as its files have it."""
        return JsonTokenizer(
            self.name, _marked(self.definition, self.special_ids, special=True), self.eot_id, self.files
        )

    @cached_property
    def content_hash(self) -> str:  # type: ignore[override]
        return self.plain.content_hash

    def save(self, folder: Path) -> None:
        self.plain.save(folder)


def probes(tokenizer: Tokenizer) -> list[bytes]:
    """Texts with each added token between words, next to itself and inside a word, to compare engines.

    They are compared even if special tokens are text, since an engine could read them all the same.
    """
    added = tokenizer.definition.get("added_tokens") if isinstance(tokenizer, DefinedTokenizer) else None
    texts = [token["content"] for token in (added or [])[:_MOST_PROBED]]
    whole = "".join(f"the {text} water {text}{text}x{text}, \n{text}\n" for text in texts)
    return [part.encode() for part in (whole, *texts) if part]


def parsing(tokenizer: Tokenizer) -> ParsingTokenizer | TiktokenTokenizer:
    """The tokenizer that reads special tokens in a text. Raises UserError where it has none."""
    if isinstance(tokenizer, TiktokenTokenizer) and tokenizer.special_tokens:
        return _parsing_tiktoken(tokenizer)
    added = tokenizer.definition.get("added_tokens") if isinstance(tokenizer, JsonTokenizer) else None
    special = frozenset(token["id"] for token in added or [] if token.get("special"))
    if not isinstance(tokenizer, JsonTokenizer) or not special:
        raise UserError(
            f"--special-tokens parse: tokenizer {tokenizer.name} has no special tokens that could be read",
            code="special-tokens-none",
        )
    definition = _marked(tokenizer.definition, special, special=False)
    return ParsingTokenizer(tokenizer.name, definition, tokenizer.eot_id, tokenizer.files, special)


def _parsing_tiktoken(tokenizer: TiktokenTokenizer) -> TiktokenTokenizer:
    """Refuse tokens that can begin at one place: tiktoken takes the first one of its table."""
    special = sorted(tokenizer.special_tokens)
    for first, second in pairwise(special):
        if second.startswith(first):
            raise UserError(
                f"--special-tokens parse: tokenizer {tokenizer.name} has the special tokens {first!r} and "
                f"{second!r}; tiktoken does not define which of them it reads if both match",
                code="special-tokens-ambiguous",
            )
    return replace(tokenizer, parses_special=True)


def choose(tokenizer: Tokenizer, how: str) -> Tokenizer:
    """The tokenizer for one of CHOICES. Raises UserError."""
    if how not in CHOICES:
        raise UserError(
            f"--special-tokens {how}: choices are {', '.join(CHOICES)}", code="special-tokens-unknown"
        )
    return parsing(tokenizer) if how == "parse" else tokenizer


def _marked(definition: dict[str, Any], ids: frozenset[int], *, special: bool) -> dict[str, Any]:
    tokens = [
        {**token, "special": special} if token["id"] in ids else token for token in definition["added_tokens"]
    ]
    return {**definition, "added_tokens": tokens}
