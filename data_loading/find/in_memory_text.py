"""Tokens in memory: a small text that is tokenized without a file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.find.open_tokens import SCHEMES
from data_loading.pretokenizer.blocks import token_dtype
from data_loading.readers.choose_reader import ReaderOptions, open_reader
from data_loading.readers.extents import extents_of
from data_loading.readers.reader import Reader
from data_loading.tokenizers.load import load_tokenizer, tokenizer_spec
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError
from memory import format_bytes

_LONGEST_PATH = 4096


@dataclass(frozen=True)
class MemorySet(Tokens):
    """Tokens in memory: `(n,)` of uint16, or uint32 if the vocabulary needs it; uint64 document starts."""

    tokens: np.ndarray
    documents: np.ndarray
    tokenizer: Tokenizer
    fingerprint: str = dataclasses.field(init=False)
    vocab_size: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.tokenizer.content_hash.encode())
        digest.update(self.tokens.tobytes())
        digest.update(self.documents.tobytes())
        object.__setattr__(self, "fingerprint", digest.hexdigest())
        object.__setattr__(self, "vocab_size", self.tokenizer.vocab_size)

    @property
    def name(self) -> str:
        return "the text in memory"

    @property
    def eot_id(self) -> int | None:
        return self.tokenizer.eot_id

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer.name

    def own_reader(self, options: ReaderOptions) -> tuple[Reader, str] | None:
        if options.verify == "blocks":
            return None
        reader, why = open_reader(extents_of(self.tokens), options)
        if reader.name == "mmap":
            why = f"in memory, {format_bytes(self.tokens.nbytes)} in each process"
        return reader, why


def tokens_of_text(text: str | Iterable[str], tokenizer: str | Path | Tokenizer) -> MemorySet:
    """Tokenize a text, or documents, in memory. The ids are those that pretokenize_dataset.py writes.

    Args:
        text: One document, or several. Each is tokenized whole and ended by the tokenizer's end-of-text id,
            if it has one; those without text are left out.
        tokenizer: Its name, its folder, or what `load_tokenizer` returned.

    Raises:
        UserError: no text in it, or the path of one instead; no such tokenizer.
    """
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_tokenizer(tokenizer_spec(str(tokenizer)))
    parts, starts, count = [], [], 0
    end = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
    for document in _documents(text):
        ids = [tokenizer.encode(document), np.array(end, np.uint32)]
        starts.append(count)
        parts += ids
        count += sum(map(len, ids))
    if not starts:
        raise UserError("nothing to tokenize: expected a text, or documents with text", code="no-text")
    tokens = np.concatenate(parts).astype(token_dtype(tokenizer.vocab_size))
    return MemorySet(tokens, np.array(starts, "<u8"), tokenizer)


def _documents(text: str | Iterable[str]) -> Iterator[str]:
    """Yield the documents with text. Raises UserError: not a text, or the name of a file."""
    if isinstance(text, bytes) or not isinstance(text, Iterable):
        raise _no_text(text)
    for number, document in enumerate([text] if isinstance(text, str) else text):
        if not isinstance(document, str):
            raise _no_text(document)
        if number == 0 and _names_tokens(document):
            raise UserError(
                f"{document} is a path or URI, and prepare_data(...) takes the text itself. For tokens: "
                f"open_tokens({document!r}). To tokenize a text: python pretokenize_dataset.py {document} "
                "--tokenizer NAME. To tokenize the path itself: end it with a line feed",
                code="path-given-as-text",
            )
        try:
            document.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"document {number}, character {error.start:,} ({document[error.start]!r}) is a lone "
                "surrogate, which UTF-8 cannot hold. Read the text with errors='replace'",
                code="lone-surrogate",
            ) from None
        if document:
            yield document


def _no_text(given: object) -> UserError:
    return UserError(
        f"expected a text (str) or documents (a list of str), got {type(given).__name__} {str(given)[:60]!r}"
        ". For tokens in a file: open_tokens(PATH)",
        code="text-type-invalid",
    )


def _names_tokens(text: str) -> bool:
    if len(text) > _LONGEST_PATH or "\n" in text or not text:
        return False
    if text.partition(":")[0] in SCHEMES and " " not in text:
        return True
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
