"""Statistics of a token set: counts, use of the vocabulary, lengths of documents, the first text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.pretokenizer.manifest import is_limited, text_bytes_of
from data_loading.tokenizers.read_files import holds_tokenizer, read_tokenizer
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import take
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.token_set import TokenSet, open_token_set
from memory import format_bytes

_MOST_FREQUENT = 10
_FIRST_TEXT_CHARACTERS = 400
_READ_IDS = 1 << 24
_MOST_LENGTHS = 1 << 20
_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Lengths:
    """Tokens of a document, end-of-text included."""

    mean: float
    smallest: int
    p5: int
    median: int
    p95: int
    largest: int
    estimated: bool
    """Whether they are of a sample of 2^20 documents."""


@dataclass(frozen=True)
class Inspection:
    """Statistics of a set."""

    path: Path
    tokens: int
    file_bytes: int
    dtype: str
    tokenizer: str
    vocab_size: int
    used_ids: int
    """Ids of the vocabulary that occur."""
    entropy_bits: float
    """Entropy of the frequencies of ids, per token."""
    most_frequent: list[tuple[int, str | None, float]]
    """(id, its text, share of all tokens)."""
    documents: int | None
    lengths: Lengths | None
    text_bytes: int | None
    """Bytes of the text that was tokenized; None if a limit ended it, and for fields of lines and columns."""
    bytes_per_token: float | None
    sources: list[dict[str, Any]]
    first_text: str | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def to_text(self) -> str:
        """Return a page for a user."""
        used = f"{self.used_ids:,} ids ({self.used_ids / self.vocab_size:.1%})"
        rows = [
            ("tokens", f"{self.tokens:,} in {format_bytes(self.file_bytes)} ({self.dtype})"),
            ("tokenizer", f"{self.tokenizer}, {self.vocab_size:,} ids"),
            ("used", f"{used}, {self.entropy_bits:.2f} bits a token"),
        ]
        if self.bytes_per_token is not None and self.text_bytes is not None:
            rows.append(
                ("text", f"{format_bytes(self.text_bytes)}, {self.bytes_per_token:.2f} bytes a token")
            )
        if self.documents is not None:
            rows.append(("documents", f"{self.documents:,}"))
        if (found := self.lengths) is not None and self.documents != 1:
            sample = " (of a sample)" if found.estimated else ""
            rows.append((
                "length",
                f"{found.mean:,.1f} tokens on average, {found.smallest:,} to {found.largest:,}; 90% have "
                f"{found.p5:,} to {found.p95:,}, half at most {found.median:,}{sample}",
            ))  # fmt: skip
        rows += [("made from", f"{one['path']}, {format_bytes(one['bytes'])}") for one in self.sources]
        lines = [str(self.path), *(f"  {label:<10}{text}" for label, text in rows), "  most frequent"]
        for number, text, share in self.most_frequent:
            lines.append(f"    {share:6.2%}  {number:>6}" + ("" if text is None else f"  {text!r}"))
        if self.first_text is not None:
            lines += ["  begins with", *(f"    {line}" for line in self.first_text.split("\n"))]
        return "\n".join(lines)


def inspect(path: Path) -> Inspection:
    """Read a token set once, in constant memory.

    Raises:
        UserError: It does not exist, or is damaged.
    """
    found = open_token_set(path)
    folder = SetFiles(found.path).tokenizer
    tokenizer = read_tokenizer(folder, found.tokenizer_name) if holds_tokenizer(folder) else None
    counts = _counts(found)
    shares = counts / len(found.tokens)
    used = shares[shares > 0]
    manifest = found.manifest or {}
    text_bytes = _text_bytes(manifest) if manifest else None
    return Inspection(
        path=found.path,
        tokens=len(found.tokens),
        file_bytes=found.file_bytes,
        dtype=found.tokens.dtype.name,
        tokenizer=found.tokenizer_name,
        vocab_size=found.vocab_size,
        used_ids=len(used),
        entropy_bits=float(-(used * np.log2(used)).sum()),
        most_frequent=[
            (int(i), tokenizer.decode([int(i)]) if tokenizer else None, float(shares[i]))
            for i in np.argsort(-counts, kind="stable")[:_MOST_FREQUENT]
            if counts[i]
        ],
        documents=None if found.documents is None else len(found.documents),
        lengths=_lengths(found),
        text_bytes=text_bytes,
        bytes_per_token=text_bytes / len(found.tokens) if text_bytes else None,
        sources=manifest.get("sources", []),
        first_text=_first_text(found, tokenizer),
    )


def _text_bytes(manifest: dict[str, Any]) -> int | None:
    sources = manifest["sources"]
    in_fields = any(
        ("skipped" in source or "nulls" in source) and "revision" not in source for source in sources
    )
    if is_limited(manifest) or in_fields:
        return None
    dropped = sum(
        source[name]["bytes"] for source in sources for name in ("cleaned", "duplicates") if name in source
    )
    return text_bytes_of(manifest) - dropped or None


def _counts(found: TokenSet) -> np.ndarray:
    counts = np.zeros(found.vocab_size, np.int64)
    for start in range(0, len(found.tokens), _READ_IDS):
        counts += np.bincount(found.tokens[start : start + _READ_IDS], minlength=found.vocab_size)
    return counts


def _lengths(found: TokenSet) -> Lengths | None:
    """Return quantiles of all lengths, or of a sample evenly spread over the set."""
    if found.documents is None:
        return None
    starts, count = found.documents, len(found.documents)
    step = -(-count // _MOST_LENGTHS)
    at = np.arange(0, count, step)
    following = np.minimum(at + 1, count - 1)
    ends = np.where(at + 1 < count, take(starts, following), len(found.tokens)).astype(np.int64)
    lengths = ends - take(starts, at).astype(np.int64)
    p5, median, p95 = (int(n) for n in np.quantile(lengths, _QUANTILES, method="inverted_cdf"))
    return Lengths(
        len(found.tokens) / count, int(lengths.min()), p5, median, p95, int(lengths.max()), step > 1
    )


def _first_text(found: TokenSet, tokenizer: Tokenizer | None) -> str | None:
    if tokenizer is None:
        return None
    text = tokenizer.decode(found.tokens[:_FIRST_TEXT_CHARACTERS])
    return text if len(text) <= _FIRST_TEXT_CHARACTERS else text[:_FIRST_TEXT_CHARACTERS] + "..."
