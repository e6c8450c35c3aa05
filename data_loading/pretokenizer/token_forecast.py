"""About how many tokens a text becomes, from samples of it, before it is tokenized."""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from data_loading.pretokenizer.blocks import token_dtype
from data_loading.pretokenizer.engines.base import Engine
from data_loading.pretokenizer.inputs.concatenated import Inputs, as_inputs
from data_loading.pretokenizer.writer import STARTS
from data_loading.text_io.source import Sample, Source
from data_loading.tokenizers.tokenizer import Tokenizer

PLACES = 64
WINDOW_BYTES = 32 << 10
_ENTERED_BYTES = 4 << 20
"""Text read from the places at which compressed files and tables can be entered, all together."""


@dataclass(frozen=True)
class Forecast:
    """Estimates for one token set; None if they cannot be known before the text is read.

    tokens: ids around documents included. text_bytes: decoded and decompressed. is_limited: it ends before
    its inputs do. is_complete: all inputs were encoded, so that tokens are exact. sampled_bytes: encoded
    text. bytes_per_s: speed of one encoder. token_bytes: size of one id in the file.
    """

    tokens: float | None
    documents: float | None
    text_bytes: float | None
    is_limited: bool
    is_complete: bool
    sampled_bytes: int
    bytes_per_s: float
    token_bytes: int

    @property
    def disk_bytes(self) -> int | None:
        """Size of the ids and the document starts."""
        if self.tokens is None:
            return None
        return math.ceil(self.tokens * self.token_bytes + (self.documents or 0) * STARTS.itemsize)


@dataclass
class _Kind:
    """Inputs that are sampled alike: their size, and sums over the samples. size_bytes: None: not known."""

    size_bytes: int | None = 0
    sampled_bytes: float = 0.0
    text_bytes: int = 0
    tokens: int = 0
    documents: int = 0

    @property
    def is_complete(self) -> bool:
        return self.size_bytes is not None and self.sampled_bytes >= 0.999_999 * self.size_bytes

    def add(self, sample: Sample, tokens: int) -> None:
        self.sampled_bytes += sample.size_bytes
        self.text_bytes += sum(map(len, sample.texts))
        self.documents += sample.documents
        self.tokens += tokens


def forecast(source: Source | Inputs, tokenizer: Tokenizer, engine: Engine) -> Forecast:
    """Encode samples of the source and extrapolate their tokens per byte to the whole.

    Raises:
        UserError: the source cannot be read.
    """
    inputs = as_inputs(source)
    kinds: dict[object, _Kind] = {}
    of_parts = [kinds.setdefault(_sampled_alike(part), _Kind()) for part in inputs.parts]
    for part, kind in zip(inputs.parts, of_parts, strict=True):
        is_known = part.total_bytes is not None and kind.size_bytes is not None
        kind.size_bytes = (kind.size_bytes or 0) + (part.total_bytes or 0) if is_known else None
    engine.load()
    seconds = 0.0
    for number, sample in samples(inputs.parts):
        started = time.perf_counter()
        count = int(engine.encode_batch(sample.texts)[1].sum()) if sample.texts else 0
        seconds += time.perf_counter() - started
        of_parts[number].add(sample, count)
    added = sum(number is not None for number in (tokenizer.eot_id, tokenizer.bos_id))
    whole = _whole(inputs, of_parts, added)
    tokens, documents, text_bytes, is_limited = whole or (None, None, None, inputs.is_limited)
    sampled_bytes = sum(kind.text_bytes for kind in kinds.values())
    return Forecast(
        tokens=tokens,
        documents=documents,
        text_bytes=text_bytes,
        is_limited=is_limited,
        is_complete=not is_limited and all(kind.is_complete for kind in kinds.values()),
        sampled_bytes=sampled_bytes,
        bytes_per_s=sampled_bytes / seconds if seconds else 0.0,
        token_bytes=token_dtype(tokenizer.vocab_size).itemsize,
    )


def _sampled_alike(part: Source) -> object:
    return type(part), part.sample_starts is not None, part.total_bytes is None


def samples(parts: Sequence[Source]) -> Iterator[tuple[int, Sample]]:
    """(number of the part, sample) at places spread evenly over all parts; all of a short text.

    The places are the same each time, but not regular, so that a text that repeats itself cannot keep step.
    """
    sizes = [part.total_bytes or 0 for part in parts]
    ends, draw = list(accumulate(sizes)), random.Random(0)
    chosen: dict[tuple[int, int], int] = {}
    if sum(sizes) <= PLACES * WINDOW_BYTES:
        chosen = {(number, 0): size for number, size in enumerate(sizes) if size}
    else:
        for place in range(PLACES):
            position = int((place + draw.random()) * sum(sizes) / PLACES)
            number = bisect_right(ends, position)
            offset = position - ends[number] + sizes[number]
            starts = parts[number].sample_starts
            if starts is not None:
                offset = starts[max(0, bisect_right(starts, offset) - 1)]
            chosen[number, offset] = WINDOW_BYTES
    seen = {_sampled_alike(parts[number]) for number, _ in chosen}
    for number, part in enumerate(parts):
        if _sampled_alike(part) not in seen:
            seen.add(_sampled_alike(part))
            chosen[number, 0] = WINDOW_BYTES
    for (number, offset), length in chosen.items():
        if parts[number].sample_starts is not None:
            length = max(length, _ENTERED_BYTES // len(chosen))
        yield number, parts[number].sample(offset, length)


def _whole(inputs: Inputs, of_parts: Sequence[_Kind], added: int) -> tuple[float, float, float, bool] | None:
    """(tokens, documents, bytes of text, whether a limit ends it) of all inputs; None: not known."""
    tokens = documents = text = 0.0
    for part, kind in zip(inputs.parts, of_parts, strict=True):
        size = math.inf if part.total_bytes is None else part.total_bytes
        if not kind.sampled_bytes or (math.isinf(size) and not kind.documents):
            return None
        count = 1.0 if part.is_one_document else kind.documents / kind.sampled_bytes * size
        count = count if kind.is_complete else max(1.0, count)
        if not count:
            continue
        bytes_each = kind.sampled_bytes / kind.documents if math.isinf(size) else size / count
        tokens_each = kind.tokens / kind.sampled_bytes * bytes_each + added
        left = [count]
        if inputs.max_documents is not None:
            left.append(max(0.0, inputs.max_documents - documents))
        if inputs.max_tokens is not None and tokens_each:
            left.append(math.ceil(max(0.0, inputs.max_tokens - tokens) / tokens_each))
        taken = min(left)
        if math.isinf(taken):
            return None
        tokens += taken * tokens_each
        text += taken * bytes_each * kind.text_bytes / kind.sampled_bytes
        documents += taken
        if taken < count:
            return tokens, documents, text, True
    return tokens, documents, text, False
