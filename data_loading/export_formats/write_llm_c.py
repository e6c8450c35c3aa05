"""llm.c: STEM_val_000000.bin, STEM_train_000001.bin ..., a header of 256 int32 and the tokens.

Source: github.com/karpathy/llm.c, dev/data/data_common.py and dev/data/fineweb.py (writers: 10^8 tokens
a file, the held-out one first, the end-of-text id *before* each document), llmc/dataloader.h,
train_gpt2.py and train_llama3.py (readers: magic, version and count must fit). The two kinds of file are
those of its two models: uint16 for GPT-2's 50,257 ids, uint32 for Llama 3's 128,256. Files are of even
size here, since every reader refuses one that is shorter than a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from data_loading.export_formats.contents import Contents, Joined, Split
from data_loading.export_formats.export_files import ExportWriter, even_sizes, write_parts
from data_loading.export_formats.exporter import Format, NotThisFormat, Reading, count, mapped
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

TOKENS_PER_FILE = 10**8
HEADER_INTS = 256
INT = np.dtype("<i4")
HEADER_BYTES = HEADER_INTS * INT.itemsize
BEFORE_LLAMA_3 = 128_000
"""The id that llm.c itself puts before each document for Llama 3: its beginning of a text."""


@dataclass(frozen=True)
class Kind:
    """What the readers of one model expect. before: the id that llm.c's writers put before a document."""

    model: str
    magic: int
    version: int
    dtype: np.dtype
    ids: int
    before: int

    def header(self, tokens: int) -> bytes:
        """Of a file with so many tokens."""
        values = np.zeros(HEADER_INTS, INT)
        values[:3] = self.magic, self.version, tokens
        return values.tobytes()


KINDS = (
    Kind("GPT-2", 20240520, 1, np.dtype("<u2"), 50_257, 50_256),
    Kind("Llama 3", 20240801, 7, np.dtype("<u4"), 128_256, BEFORE_LLAMA_3),
)


class LlmC(Format):
    name = "llm.c"
    has_val = True

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= KINDS[-1].ids:
            return None
        models = " and ".join(f"{kind.model} with {kind.ids:,} ids" for kind in KINDS)
        return (
            f"llm.c's models are {models}, and tokenizer {tokenizer.name} has {tokenizer.vocab_size:,}: its "
            "readers would take ids that their model lacks"
        )

    def notes(self, contents: Contents) -> Iterator[str]:
        kind, tokenizer = _kind(contents), contents.tokenizer
        if not contents.is_gpt2:
            yield (
                f"llm.c takes these files for those of {kind.model} ({kind.ids:,} ids, {kind.dtype.name}), "
                f"since nothing in them says otherwise: the {tokenizer['vocab_size']:,} ids of "
                f"{tokenizer['name']} fit, but if they are not {kind.model}'s, text that it samples is wrong"
            )
        before = tokenizer.get("bos_id", tokenizer["eot_id"] if tokenizer["eot_appended"] else None)
        if kind is KINDS[1] and before not in (None, BEFORE_LLAMA_3):
            yield (
                f"before each document is {before} of {tokenizer['name']}; llm.c's own files for "
                f"{kind.model} have {BEFORE_LLAMA_3} there"
            )

    def stream(self, split: Split) -> Iterator[np.ndarray]:
        """An end-of-text id behind a document of the set is before it here, if no other id is before it."""
        first, stop = _moved(split)
        if len(first):
            yield first
        yield from split.slices(stop)

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        kind, number = _kind(contents), 0
        for name in ("val", "train"):
            split = contents.splits[name]
            first, stop = _moved(split)
            total = len(first) + stop - split.start
            if total <= 0:
                raise UserError(
                    f"llm.c needs a token in {name}, and {split.tokens.path} has none for it: tokenize more "
                    "text",
                    code="export-split-empty",
                )
            sizes = even_sizes(total, TOKENS_PER_FILE)
            parts = [(f"{contents.stem}_{name}_{number + i:06d}.bin", size) for i, size in enumerate(sizes)]
            write_parts(writer, parts, self.stream(split), kind.dtype, kind.header)
            number += len(sizes)

    def read(self, folder: Path) -> Reading:
        found = {}
        for name in ("train", "val"):
            paths = sorted(folder.glob(f"*_{name}_*.bin"))
            if not paths:
                raise NotThisFormat(f"there is no file *_{name}_*.bin")
            kinds, lengths = zip(*map(read_header, paths), strict=True)
            if len(set(kinds)) > 1:
                raise NotThisFormat(f"the files *_{name}_*.bin are of both kinds, GPT-2's and Llama 3's")
            found[name] = Joined(lengths, kinds[0].dtype, partial(_open, paths, kinds[0].dtype))
        return Reading(dict(found))


def _kind(contents: Contents) -> Kind:
    return next(kind for kind in KINDS if contents.tokenizer["vocab_size"] <= kind.ids)


def _moved(split: Split) -> tuple[np.ndarray, int]:
    """(what is put before the split, where its tokens stop) so that end-of-text ids come first."""
    tokenizer = (split.tokens.manifest or {}).get("tokenizer", {})
    if not tokenizer.get("eot_appended") or "bos_id" in tokenizer:
        return np.empty(0, np.uint32), split.stop
    first = [tokenizer["eot_id"]] if split.begins_document else []
    return np.array(first, np.uint32), split.stop - split.ends_document


def read_header(path: Path) -> tuple[Kind, int]:
    """(kind, tokens) of a file whose header and length are right."""
    header = np.fromfile(path, INT, HEADER_INTS)
    if len(header) < HEADER_INTS:
        raise NotThisFormat(f"{path.name} is shorter than its header")
    magic, version, tokens = (int(value) for value in header[:3])
    kind = next((kind for kind in KINDS if (kind.magic, kind.version) == (magic, version)), None)
    if kind is None:
        raise NotThisFormat(
            f"{path.name} begins with {magic} and version {version}, which is no header of llm.c"
        )
    there = count(path, kind.dtype, HEADER_BYTES)
    if there != tokens or not tokens:
        raise NotThisFormat(f"{path.name} has {there:,} tokens, its header says {tokens:,}")
    return kind, tokens


def _open(paths: Sequence[Path], dtype: np.dtype, number: int) -> np.ndarray:
    return mapped(paths[number], dtype, HEADER_BYTES)


FORMAT = LlmC()
