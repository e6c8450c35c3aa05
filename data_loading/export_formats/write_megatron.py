"""Write Megatron's STEM_text_document.bin and .idx (`read_megatron.py`).

Source: github.com/NVIDIA/Megatron-LM, tools/preprocess_data.py (names, one sequence a document, with
--append-eod the end-of-text id behind each; uint16 below 65,500 ids, else int32).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_loading.dataset.splits import DOCUMENTS_FOR_A_BORDER
from data_loading.export_formats.contents import Contents
from data_loading.export_formats.export_files import ExportWriter, write_parts
from data_loading.export_formats.exporter import Format
from data_loading.import_formats.read_megatron import CODES, HEADER, MAGIC, Megatron
from data_loading.tokenizers.tokenizer import Tokenizer
from data_loading.tokens.lazy_array import document_lengths
from data_loading.tokens.token_set import TokenSet

_IDS_FOR_UINT16 = 65_500
LONGEST_SEQUENCE = 2**31 - 1
"""Lengths are int32: a longer document is written as several sequences."""


class MegatronFormat(Format):
    """Megatron: all tokens with their documents; it divides them itself."""

    name = "megatron"
    has_val = False
    kind = Megatron()

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= 2**31:
            return None
        return f"Megatron reads int32, and tokenizer {tokenizer.name} has {tokenizer.vocab_size:,} ids"

    def notes(self, contents: Contents) -> Iterator[str]:
        token_set = contents.splits["all"].tokens
        documents = 1 if token_set.documents is None else len(token_set.documents)
        if documents < DOCUMENTS_FOR_A_BORDER and not contents.val_apart:
            count = "1 document" if documents == 1 else f"{documents} documents"
            yield (
                f"Megatron's --split divides whole documents, and this set has {count}: separate them with "
                "--document-separator, or hold out a text of its own with --val"
            )

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        split, name = contents.splits["all"], f"{contents.stem}_text_document"
        code = 8 if contents.tokenizer["vocab_size"] < _IDS_FOR_UINT16 else 4
        write_parts(writer, [(f"{name}.bin", len(split))], self.stream(split), CODES[code])
        sequences = sum(len(lengths) for lengths, _ in _sequences(split.tokens))
        documents = sum(len(counts) for _, counts in _sequences(split.tokens))
        with writer.file(f"{name}.idx") as file:
            file.write(HEADER.pack(MAGIC, 1, code, sequences, documents + 1))
            for lengths, _ in _sequences(split.tokens):
                file.write(lengths.astype("<i4"))
            offset = 0
            for lengths, _ in _sequences(split.tokens):
                ends = np.cumsum(lengths) + offset
                file.write(((ends - lengths) * CODES[code].itemsize).astype("<i8"))
                offset = int(ends[-1])
            file.write(np.zeros(1, "<i8"))
            last = 0
            for _, counts in _sequences(split.tokens):
                indices = np.cumsum(counts) + last
                file.write(indices.astype("<i8"))
                last = int(indices[-1])


def _sequences(token_set: TokenSet) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (length of each sequence, sequences of each document), int64, in slices."""
    starts = [0] if token_set.documents is None else token_set.documents
    for lengths in document_lengths(starts, token_set.n_tokens):
        counts = -(-lengths // LONGEST_SEQUENCE)
        sequences = np.full(int(counts.sum()), LONGEST_SEQUENCE, np.int64)
        sequences[np.cumsum(counts) - 1] = lengths - (counts - 1) * LONGEST_SEQUENCE
        yield sequences, counts


FORMAT = MegatronFormat()
