"""nanoGPT: train.bin and val.bin, uint16 without a header, and meta.pkl.

Source: github.com/karpathy/nanoGPT, data/openwebtext/prepare.py and data/shakespeare_char/prepare.py
(writers: an end-of-text id after each document, meta.pkl with vocab_size, itos and stoi), train.py and
sample.py (readers). Both readers take GPT-2's vocabulary (50,304 rows, tiktoken's text) where there is
no meta.pkl, so it is written for every tokenizer but GPT-2's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_loading.export_formats.contents import Contents
from data_loading.export_formats.export_files import ExportWriter, write_parts
from data_loading.export_formats.exporter import Format, NotThisFormat, Reading, mapped
from data_loading.tokenizers.tokenizer import Tokenizer

DTYPE = np.dtype("<u2")
MOST_IDS = 1 << 16


class NanoGPT(Format):
    name = "nanogpt"
    has_val = True

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= MOST_IDS:
            return None
        return (
            f"nanoGPT reads uint16, which holds {MOST_IDS:,} ids, and tokenizer {tokenizer.name} has "
            f"{tokenizer.vocab_size:,}"
        )

    def notes(self, contents: Contents) -> Iterator[str]:
        if not contents.is_gpt2:
            yield (
                "nanoGPT's sample.py spells a prompt character by character with meta.pkl, so its ids are "
                "not those of the tokenizer; train.py is not concerned"
            )

    def write(self, contents: Contents, tokenizer: Tokenizer, writer: ExportWriter) -> None:
        for name, split in contents.splits.items():
            write_parts(writer, [(f"{name}.bin", len(split))], self.stream(split), DTYPE)
        if not contents.is_gpt2:
            with writer.file("meta.pkl") as file:
                file.write(_meta(tokenizer))

    def read(self, folder: Path) -> Reading:
        found = {name: mapped(folder / f"{name}.bin", DTYPE) for name in ("train", "val")}
        for name, tokens in found.items():
            if not len(tokens):
                raise NotThisFormat(f"{name}.bin is empty")
        return Reading(dict(found))


def _meta(tokenizer: Tokenizer) -> bytes:
    """vocab_size; itos: the text of each id; stoi: the id of each character that is one id."""
    itos = {number: tokenizer.decode([number]) for number in range(tokenizer.vocab_size)}
    stoi: dict[str, int] = {}
    for number, text in itos.items():
        if len(text) == 1 and text != "\ufffd":
            stoi.setdefault(text, number)
    return pickle.dumps({"vocab_size": tokenizer.vocab_size, "itos": itos, "stoi": stoi}, protocol=4)


FORMAT = NanoGPT()
