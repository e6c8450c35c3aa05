"""What a text will become, before it is tokenized: tokens with their error, documents, time, memory.

Samples of it are encoded, in a worker process such as the job would have, by the engine that it would
have; what they hold is carried over to the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_loading.children import Channel, Child, how_it_died, oom_kills, with_news
from data_loading.pretokenizer.blocks import token_dtype
from data_loading.pretokenizer.engine import Engine, anonymous_bytes
from data_loading.pretokenizer.inputs import Inputs
from data_loading.pretokenizer.ratio import Estimate, half_width, ratio_estimate
from data_loading.pretokenizer.sampling import Kind, parts_of, take_samples
from data_loading.pretokenizer.source import Part, Source
from data_loading.pretokenizer.writer import STARTS
from data_loading.tokenizer import Tokenizer
from experiment_utils.errors import UserError


@dataclass(frozen=True)
class Forecast:
    """Of one token set; None where nothing tells.

    tokens: end-of-text ids included. error_tokens: half of its 95% interval, None where the samples do
    not tell how far they are from the whole. documents, text_bytes: decoded and decompressed.
    is_limited: it ends before its inputs do. is_complete: all of its inputs were encoded, so that tokens
    are exact. sampled_bytes: text that was encoded, from so many `places`. bytes_per_s: of one process.
    load_s: until it begins. worker_bytes: anonymous memory of the process that encoded the samples.
    token_bytes: of one id in the file.
    """

    tokens: float | None
    error_tokens: float | None
    documents: float | None
    text_bytes: float | None
    is_limited: bool
    is_complete: bool
    sampled_bytes: int
    places: int
    bytes_per_s: float
    load_s: float
    worker_bytes: int
    token_bytes: int

    @property
    def at_least_tokens(self) -> float | None:
        return None if self.tokens is None else max(0.0, self.tokens - (self.error_tokens or 0))

    @property
    def at_most_tokens(self) -> float | None:
        return None if self.tokens is None else self.tokens + (self.error_tokens or 0)

    def disk_bytes(self, tokens: float | None, tokenizer_bytes: int = 0) -> int | None:
        """Of a set of so many tokens: ids, document starts, the tokenizer's copy."""
        if tokens is None:
            return None
        return (
            math.ceil(tokens * self.token_bytes + (self.documents or 0) * STARTS.itemsize) + tokenizer_bytes
        )


@dataclass(frozen=True)
class Measured:
    """What a process found that encoded texts.

    tokens: of each text. bytes_per_s: once warm. load_s: before the first. anon_bytes: its memory.
    """

    tokens: list[int]
    bytes_per_s: float
    load_s: float
    anon_bytes: int


@dataclass(frozen=True)
class Encoding:
    """The task of that process. engine: made of `definition`."""

    engine: type[Engine]
    definition: str
    texts: list[bytes]

    def run(self, channel: Channel) -> None:
        started = time.perf_counter()
        engine = self.engine(self.definition)
        engine.load()
        load_s = time.perf_counter() - started
        counts, clock = list[int](), list[tuple[int, float]]()
        for batch in _batches(self.texts, engine.block_bytes):
            started = time.perf_counter()
            counts += map(int, engine.encode_batch(batch)[1])
            clock.append((sum(map(len, batch)), time.perf_counter() - started))
        # While its caches are empty an engine is slower than it will be.
        warm = clock[len(clock) // 2 :]
        seconds = sum(taken for _, taken in warm)
        speed = sum(size for size, _ in warm) / seconds if seconds else 0.0
        channel.answer(0, Measured(counts, speed, load_s, anonymous_bytes()))


def forecast(source: Source | Inputs, tokenizer: Tokenizer, engine: Engine) -> Forecast:
    """Look at samples of the source. engine: that the job would take, not loaded.

    Raises:
        UserError: the source cannot be read, or the process that encodes the samples died.
    """
    inputs = source if isinstance(source, Inputs) else Inputs([source])
    parts = parts_of(inputs)
    kinds = take_samples(parts, tokenizer.cut_rule)
    texts = [text for kind in kinds for sample in kind.samples for text in sample.texts]
    found = _encoded(engine, texts)
    counts = iter(found.tokens)
    added = sum(number is not None for number in (tokenizer.eot_id, tokenizer.bos_id))
    of_kinds = [_of_kind(kind, parts, counts, added) for kind in kinds]
    whole = _limited(inputs, kinds, of_kinds)
    error = half_width([of_kind.estimate for of_kind in of_kinds])
    if whole.is_limited or not all(kind.tells_spread for kind in kinds):
        error = None
    return Forecast(
        tokens=whole.tokens,
        error_tokens=error,
        documents=whole.documents,
        text_bytes=whole.text_bytes,
        is_limited=whole.is_limited,
        is_complete=not whole.is_limited and all(kind.is_complete for kind in kinds),
        sampled_bytes=sum(map(len, texts)),
        places=sum(len(kind.samples) for kind in kinds),
        bytes_per_s=found.bytes_per_s,
        load_s=found.load_s,
        worker_bytes=found.anon_bytes,
        token_bytes=token_dtype(tokenizer.vocab_size).itemsize,
    )


@dataclass(frozen=True)
class _OfKind:
    """What the samples of one kind of input say. estimate: of its tokens, end-of-text ids included.

    tokens_per_byte, documents_per_byte, text_per_byte: of the inputs as they lie on disk.
    """

    estimate: Estimate
    tokens_per_byte: float
    documents_per_byte: float
    text_per_byte: float


def _of_kind(kind: Kind, parts: Sequence[Part], counts: Iterator[int], added: int) -> _OfKind:
    """counts: of the tokens of each text, in order; takes those of this kind. added: ids a document."""
    sizes = [sample.size_bytes for sample in kind.samples]
    tokens = [sum(next(counts) for _ in sample.texts) for sample in kind.samples]
    documents = [sample.documents for sample in kind.samples]
    known = [parts[number].known_documents for number in kind.parts]
    ends = 0
    if None in known:
        tokens = [count + added * ended for count, ended in zip(tokens, documents, strict=True)]
    else:
        ends = added * sum(number or 0 for number in known)
    size = sum(sizes)
    found = ratio_estimate(sizes, tokens, kind.size_bytes or 0.0)
    text = sum(len(text) for sample in kind.samples for text in sample.texts)
    return _OfKind(
        Estimate(found.total + ends, found.variance, found.degrees),
        sum(tokens) / size + (ends / kind.size_bytes if kind.size_bytes else 0) if size else math.nan,
        sum(documents) / size if size else math.nan,
        text / size if size else math.nan,
    )


@dataclass(frozen=True)
class _Whole:
    tokens: float | None
    documents: float | None
    text_bytes: float | None
    is_limited: bool


def _limited(inputs: Inputs, kinds: Sequence[Kind], of_kinds: Sequence[_OfKind]) -> _Whole:
    """All inputs in order, up to the document in which one of the limits falls."""
    kind_of = {number: of for kind, of in zip(kinds, of_kinds, strict=True) for number in kind.parts}
    tokens = documents = text = 0.0
    for number, part in enumerate(parts_of(inputs)):
        of = kind_of[number]
        size = math.inf if part.total_bytes is None else part.total_bytes
        count = part.known_documents or of.documents_per_byte * size
        if math.isnan(of.tokens_per_byte) or (count < 1 and part.total_bytes is None):
            return _Whole(None, None, None, inputs.is_limited)
        count = max(1.0, count)
        # What one document has, on average; of an input without end it does not depend on its size.
        per = 1 / of.documents_per_byte if math.isinf(size) else size / count
        taken = _within(inputs, documents, tokens, count, of.tokens_per_byte * per)
        if math.isinf(taken):
            return _Whole(None, None, None, inputs.is_limited)
        tokens += taken * per * of.tokens_per_byte
        text += taken * per * of.text_per_byte
        documents += taken
        if taken < count:
            return _Whole(tokens, documents, text, True)
    return _Whole(tokens, documents, text, False)


def _within(inputs: Inputs, documents: float, tokens: float, count: float, of_each: float) -> float:
    """How many of `count` documents are taken after so many documents and tokens."""
    left = [count]
    if inputs.max_documents is not None:
        left.append(max(0, inputs.max_documents - documents))
    if inputs.max_tokens is not None and of_each:
        left.append(math.ceil(max(0.0, inputs.max_tokens - tokens) / of_each))
    return min(left)


def _encoded(engine: Engine, texts: list[bytes]) -> Measured:
    kills = oom_kills()
    child = Child(Encoding(type(engine), engine.definition, texts))
    try:
        while not with_news([child], 0.25):
            child.note_memory()
        return child.answer()
    except (EOFError, OSError):
        raise UserError(
            f"encoding samples with engine {engine.name}: {how_it_died(child, kills)}",
            code="sample-process-died",
        ) from None
    finally:
        child.end()


def _batches(texts: Sequence[bytes], batch_bytes: int) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= batch_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
