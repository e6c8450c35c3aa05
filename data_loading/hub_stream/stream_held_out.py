"""Held-out tokens of a stream: read once into memory, the same in every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from data_loading.hub_stream.stream_documents import StreamDocuments, digest
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from data_loading.hub_stream.hub_stream import HubStream

HELD_OUT_TOKENS = 1_000_000


@dataclass(frozen=True)
class HeldOut(Tokens):
    """Tokens of whole documents, in memory."""

    source: str
    tokens: np.ndarray
    documents: np.ndarray
    vocab_size: int
    fingerprint: str
    eot: int | None
    tokenizer: str
    digests: frozenset[bytes]
    """Identities of these documents."""

    @property
    def name(self) -> str:
        return self.source

    @property
    def eot_id(self) -> int | None:
        return self.eot

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer


def read_held_out(texts: StreamDocuments, stream: HubStream) -> HeldOut:
    """Return the first documents, up to the one with token `stream.val_tokens`.

    Raises:
        UserError: there are fewer, and what is left is to be trained on.
    """
    tokenizer, own = stream.tokenizer, stream.val_split
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    end = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
    parts, starts, digests, count = list[np.ndarray](), list[int](), set[bytes](), 0
    while count < stream.val_tokens:
        text = texts.next()
        if text is None:
            break
        starts.append(count)
        digests.add(digest(text.encode()))
        parts.append(np.concatenate([tokenizer.encode(text), np.array(end, np.uint32)]).astype(dtype))
        count += len(parts[-1])
    if not parts:
        raise UserError(f"{stream.name} {own or stream.split}: no document with a text", code="hub-no-text")
    if own is None and texts.next() is None:
        raise UserError(
            f"{stream.name} has {count:,} tokens, all of which would be held out as val, since it has no "
            "split for that. Hold fewer out: dataset.val_tokens=N (in Python val=N)",
            code="val-tokens-too-many",
        )
    print_of = hashlib.sha256(f"{stream.data_fingerprint} val".encode()).hexdigest()
    return HeldOut(
        source=f"{stream.name} {own}" if own else f"{stream.name} {stream.split} (its first documents)",
        tokens=np.concatenate(parts),
        documents=np.array(starts, np.uint64),
        vocab_size=tokenizer.vocab_size,
        fingerprint=print_of,
        eot=tokenizer.eot_id,
        tokenizer=tokenizer.name,
        digests=frozenset(digests),
    )
