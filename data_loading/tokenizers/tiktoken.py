"""An encoding of the package tiktoken: ranks of byte strings, a pattern that divides text, special tokens.

It encodes and decodes without the package, which is needed only to look up an encoding by its name. Its files
are `ranks.tiktoken`, the text in which tiktoken itself keeps ranks (a line each: the token in base64, its
rank), and `tiktoken.json` with the rest.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.tokenizers.byte_level import UTF8_BYTES
from data_loading.tokenizers.tiktoken_definition import tiktoken_definition
from data_loading.tokenizers.tokenizer import END_OF_TEXT_NAMES, DefinedTokenizer
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import numpy as np

RANKS_FILE = "ranks.tiktoken"
TIKTOKEN_FILE = "tiktoken.json"


@dataclass(frozen=True)
class TiktokenTokenizer(DefinedTokenizer):
    """ranks: lines of `ranks.tiktoken`, by rank. parses_special: special tokens in a text become their ids.

    Some ids between 0 and vocab_size can be unused: OpenAI's encodings leave some free.
    """

    name: str
    pattern: str
    special_tokens: dict[str, int]
    ranks: str
    parses_special: bool = False

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override]
        return max(self._tokens) + 1

    @property
    def unused_ids(self) -> int:
        """Number of ids below vocab_size without a token."""
        return self.vocab_size - len(self._tokens)

    @cached_property
    def eot_id(self) -> int | None:  # type: ignore[override]
        known = self.special_tokens
        return next((known[name] for name in END_OF_TEXT_NAMES if name in known), None)

    @cached_property
    def content_hash(self) -> str:  # type: ignore[override]
        return _content_hash(self.pattern, self.special_tokens, self.ranks)

    @cached_property
    def definition(self) -> dict[str, Any]:  # type: ignore[override]
        """The parsed tokenizer.json, which takes up to three seconds to make. Raises UserError."""
        parsed = self.special_tokens if self.parses_special else {}
        return tiktoken_definition(self.name, self.pattern, self._ranks, parsed)

    @cached_property
    def _tokens(self) -> dict[int, bytes]:
        special = {number: text.encode() for text, number in self.special_tokens.items()}
        return self.text_tokens | special

    @property
    def text_tokens(self) -> dict[int, bytes]:
        """Bytes of each id, special tokens left out."""
        return {rank: token for token, rank in self._ranks.items()}

    @property
    def _ranks(self) -> dict[bytes, int]:
        return _parsed(self.ranks, f"tokenizer {self.name}")

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of the ids; bytes that are not UTF-8 and unused ids become U+FFFD."""
        nothing = "\ufffd".encode()
        return b"".join(self._tokens.get(int(i), nothing) for i in ids).decode(errors="replace")

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RANKS_FILE).write_text(self.ranks, encoding="ascii")
        description = {
            "type": "tiktoken",
            "pattern": self.pattern,
            "special_tokens": self.special_tokens,
            "content_hash": self.content_hash,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False)
        (folder / TIKTOKEN_FILE).write_text(text + "\n", encoding="utf-8")


def ranks_text(ranks: dict[bytes, int]) -> str:
    """Content of `ranks.tiktoken`."""
    lines = sorted(ranks.items(), key=lambda entry: entry[1])
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in lines)


def checked(tokenizer: TiktokenTokenizer) -> TiktokenTokenizer:
    """The tokenizer, unless it would fail on some text or give one id to two tokens. Raises UserError."""
    ranks = _parsed(tokenizer.ranks, f"tokenizer {tokenizer.name}")
    lost = [byte for byte in UTF8_BYTES if bytes([byte]) not in ranks]
    if lost:
        raise UserError(
            f"tokenizer {tokenizer.name} has no rank for {len(lost)} of the byte values of UTF-8 (such as "
            f"0x{lost[0]:02x}), and tiktoken fails at a text that has one",
            code="tokenizer-loses-bytes",
        )
    (number, count), *_ = Counter([*ranks.values(), *tokenizer.special_tokens.values()]).most_common(1)
    if count > 1:
        raise UserError(
            f"tokenizer {tokenizer.name} has {count} tokens of the id {number}", code="tiktoken-id-twice"
        )
    return tokenizer


def read_tiktoken(folder: Path, name: str) -> TiktokenTokenizer:
    """Read the files that `TiktokenTokenizer.save` writes.

    Raises:
        UserError: a file is missing or damaged.
    """
    path, ranks_path = folder / TIKTOKEN_FILE, folder / RANKS_FILE
    try:
        said: Any = json.loads(path.read_text(encoding="utf-8"))
        pattern, special = str(said["pattern"]), {str(k): int(v) for k, v in said["special_tokens"].items()}
        there = str(said["content_hash"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}). {_FIX}", code="tokenizer-damaged"
        ) from error
    try:
        ranks = ranks_path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise UserError(
            f"{ranks_path} is missing, which belongs to {path.name}. {_FIX}", code="tokenizer-damaged"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{ranks_path} is damaged ({error}). {_FIX}", code="tokenizer-damaged") from error
    _parsed(ranks, str(ranks_path))
    if _content_hash(pattern, special, ranks) != there:
        raise UserError(
            f"{ranks_path} and {path.name} are not what was saved: their content is "
            f"{_content_hash(pattern, special, ranks)[:12]}, and {path.name} says {there[:12]}. {_FIX}",
            code="tokenizer-damaged",
        )
    return TiktokenTokenizer(name, pattern, special, ranks)


_FIX = "Copy the folder again, or tokenize again with --tokenizer tiktoken:NAME"


def _content_hash(pattern: str, special_tokens: dict[str, int], ranks: str) -> str:
    facts = json.dumps([pattern, sorted(special_tokens.items())])
    return hashlib.sha256(f"tiktoken\n{facts}\n{ranks}".encode()).hexdigest()


def _parsed(ranks: str, what: str) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for number, line in enumerate(ranks.splitlines(), 1):
        try:
            token, rank = line.split(" ")
            found[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise UserError(
                f"{what}, line {number}: expected a token in base64 and its rank, found {line[:80]!r}. "
                f"{_FIX}",
                code="tokenizer-damaged",
            ) from None
    if not found:
        raise UserError(f"{what} has no ranks. {_FIX}", code="tokenizer-damaged")
    return found
