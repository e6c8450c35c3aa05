"""The interface of a tokenizer: ids, sizes, a content hash, its files.

There are three kinds: bytes, which needs no file; a Hugging Face tokenizer.json; and encodings of tiktoken,
which are converted to one. The text of a special token in a document (`<|endoftext|>`) is ordinary text and
never becomes the special id, except with `special_tokens.parsing`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from data_loading.tokenizers.cutting.cuts import EVERY_CHARACTER, CutRule, cut_rule
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import tokenizers

BYTES_FILE = "bytes.json"
BYTES_EOT = 256
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_NAMES = (
    END_OF_TEXT,
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<|im_end|>",
    "[EOS]",
    "[SEP]",
)
"""Looked for in this order if no file of the tokenizer names its end of text."""


FIX = (
    "The file was edited, or is of another version of the package tokenizers: fetch it again, or "
    "pip install --upgrade tokenizers"
)


class TokenizerNotFound(UserError):
    """A tokenizer is in none of the places where it is looked for."""

    code = "tokenizer-not-found"


class Tokenizer(ABC):
    """Encodes text to ids."""

    name: str
    vocab_size: int
    """Ids are in [0, vocab_size)."""
    eot_id: int | None
    """Id behind each document; None if the tokenizer has no such token."""
    content_hash: str
    """SHA-256 over everything that decides the ids: not over names or layout of files, not over the three
    choices below."""
    cut_rule: CutRule
    parses_special: bool = False
    """Special tokens in a text become their ids."""
    bos_id: int | None = None
    """Id before each document; None: no id."""
    chosen_ends: Mapping[str, int | str] = MappingProxyType({})
    """`eos` and `bos`, if a user chose others than the tokenizer's own."""

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Ids of the text encoded whole, uint32 `(n,)`, without an end-of-text id."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files from which `data_loading.load_tokenizer` makes this tokenizer again."""


class BytesTokenizer(Tokenizer):
    """Ids 0-255 are the bytes of the UTF-8 text, 256 ends a document."""

    name = "bytes"
    vocab_size = 257
    eot_id = BYTES_EOT
    content_hash = hashlib.sha256(b"bytes 0-255, end of text 256").hexdigest()
    cut_rule = EVERY_CHARACTER

    @property
    def description(self) -> dict[str, Any]:
        """Content of its file."""
        return {"type": "bytes", "vocab_size": self.vocab_size, "eot_id": BYTES_EOT}

    def encode(self, text: str) -> np.ndarray:
        import numpy as np

        return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        runs, run = [], bytearray()
        for i in map(int, ids):
            if i == BYTES_EOT:
                runs.append(run.decode(errors="replace"))
                run = bytearray()
            else:
                run.append(i)
        return END_OF_TEXT.join([*runs, run.decode(errors="replace")])

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / BYTES_FILE).write_text(json.dumps(self.description) + "\n")


class DefinedTokenizer(Tokenizer):
    """A tokenizer that a tokenizer.json defines: the engines encode with it."""

    definition: dict[str, Any]
    """The parsed tokenizer.json."""

    @cached_property
    def cut_rule(self) -> CutRule:  # type: ignore[override]
        return cut_rule(self.definition)

    @cached_property
    def json(self) -> str:
        """Text of the tokenizer.json for engines, without truncation and padding."""
        whole = {**self.definition, "truncation": None, "padding": None}
        return json.dumps(whole, ensure_ascii=False)

    @cached_property
    def reference(self) -> tokenizers.Tokenizer:
        """Hugging Face's own tokenizer, whose ids are the right ones."""
        return reference_tokenizer(self.json, f"tokenizer {self.name}")

    def encode(self, text: str) -> np.ndarray:
        import numpy as np

        return np.array(self.reference.encode(text, add_special_tokens=False).ids, np.uint32)


@dataclass(frozen=True)
class JsonTokenizer(DefinedTokenizer):
    """A tokenizer.json, read from a file or built from vocab.json and merges.txt.

    files: what it was made from, copied by `save`.
    """

    name: str
    definition: dict[str, Any]
    eot_id: int | None
    files: tuple[Path, ...]

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override]
        return max(vocabulary(self.definition).values()) + 1

    @cached_property
    def content_hash(self) -> str:  # type: ignore[override]
        canonical = json.dumps(_canonical(self.definition), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"{canonical}\n{self.eot_id}".encode()).hexdigest()

    @cached_property
    def reference(self) -> tokenizers.Tokenizer:
        return reference_tokenizer(self.json, str(self.files[0] if self.files else f"tokenizer {self.name}"))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return self.reference.decode([int(i) for i in ids], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            shutil.copyfile(file, folder / file.name)
        if not (folder / "tokenizer.json").exists():
            (folder / "tokenizer.json").write_text(self.json, encoding="utf-8")


def reference_tokenizer(definition: str, what: str) -> tokenizers.Tokenizer:
    """Hugging Face's tokenizer of a tokenizer.json, set to read special tokens in a text as text.

    Raises:
        UserError: it cannot be loaded.
    """
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(definition)
    except Exception as error:  # tokenizers raises bare Exception
        raise UserError(f"{what} cannot be loaded ({error}). {FIX}", code="tokenizer-damaged") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def vocabulary(definition: dict[str, Any]) -> dict[str, int]:
    """Token to id, added tokens included, of a parsed tokenizer.json."""
    model = definition.get("model") or {}
    entries = model.get("vocab") or {}
    if isinstance(entries, list):  # Unigram: [piece, score] in the order of ids
        entries = {piece[0]: index for index, piece in enumerate(entries)}
    return {**entries, **{token["content"]: token["id"] for token in definition.get("added_tokens") or []}}


def _canonical(definition: dict[str, Any]) -> dict[str, Any]:
    """The parts that decide ids, without what differs between writers of the same tokenizer.

    Older files lack keys that newer ones write at their default, and spell merges "a b" instead of
    ["a", "b"].
    """
    model = definition["model"]
    settings = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    merges = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model.get("merges") or []]
    added = definition.get("added_tokens") or []
    return {
        "model": {**_without_defaults(settings), "type": model_type(definition)},
        "vocab": model["vocab"],
        "merges": merges,
        "normalizer": _without_defaults(definition.get("normalizer")),
        "pre_tokenizer": _without_defaults(definition.get("pre_tokenizer")),
        "added_tokens": [_without_defaults(token) for token in added if not token.get("special")],
        "special_tokens": sorted([token["id"], token["content"]] for token in added if token.get("special")),
    }


def model_type(definition: dict[str, Any]) -> str:
    """Type of the model; files written before 2021 leave it out for BPE."""
    model = definition["model"]
    return str(model.get("type") or ("BPE" if "merges" in model else ""))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {
            key: _without_defaults(item)
            for key, item in value.items()
            if item is not None and item != "" and item is not False and key != "trim_offsets"
        }
        if kept.get("type") == "ByteLevel":
            kept["use_regex"] = value.get("use_regex", True)
        return kept
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    return value
