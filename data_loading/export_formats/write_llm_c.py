"""Write llm.c's files (`read_llm_c.py`), of even size, since its readers refuse one shorter than a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_loading.export_formats.contents import Contents, Split
from data_loading.export_formats.export_files import ExportWriter, even_sizes, write_parts
from data_loading.export_formats.exporter import Format
from data_loading.import_formats.read_llm_c import KINDS, LLAMA_3, FileKind, LlmC
from data_loading.tokenizers.tokenizer import Tokenizer
from experiment_utils.errors import UserError

TOKENS_PER_FILE = 10**8


class LlmCFormat(Format):
    """llm.c: val first, the end-of-text id before each document."""

    name = "llm.c"
    has_val = True
    kind = LlmC()

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= KINDS[-1].ids:
            return None
        models = " and ".join(f"{kind.model} with {kind.ids:,} ids" for kind in KINDS)
        return f"llm.c's models are {models}; tokenizer {tokenizer.name} has {tokenizer.vocab_size:,}"

    def notes(self, contents: Contents) -> Iterator[str]:
        kind, tokenizer = _kind(contents), contents.tokenizer
        if not contents.is_gpt2:
            yield (
                f"llm.c takes these files for those of {kind.model} ({kind.ids:,} ids, {kind.dtype.name}): "
                f"the {tokenizer['vocab_size']:,} ids of {tokenizer['name']} fit, but if they are not "
                f"{kind.model}'s, the text that it samples is wrong"
            )
        before = tokenizer.get("bos_id", tokenizer["eot_id"] if tokenizer["eot_appended"] else None)
        if kind is LLAMA_3 and before not in (None, kind.begin_id):
            yield (
                f"before each document is {before} of {tokenizer['name']}; llm.c's own files for "
                f"{kind.model} have {kind.begin_id} there"
            )

    def stream(self, split: Split) -> Iterator[np.ndarray]:
        """Yield the tokens with the end-of-text ids before documents, unless another id is before them."""
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


def _kind(contents: Contents) -> FileKind:
    """Return the kind of the smallest model that has the ids."""
    return next(kind for kind in KINDS if contents.tokenizer["vocab_size"] <= kind.ids)


def _moved(split: Split) -> tuple[np.ndarray, int]:
    """Return (ids put before the split, end of its tokens), so that end-of-text ids come first."""
    tokenizer = (split.tokens.manifest or {}).get("tokenizer", {})
    if not tokenizer.get("eot_appended") or "bos_id" in tokenizer:
        return np.empty(0, np.uint32), split.stop
    first = [tokenizer["eot_id"]] if split.begins_document else []
    return np.array(first, np.uint32), split.stop - split.ends_document


FORMAT = LlmCFormat()
