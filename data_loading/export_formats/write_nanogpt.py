"""Write nanoGPT's train.bin, val.bin and meta.pkl (`raw.py`).

Without meta.pkl its readers take the vocabulary for GPT-2's, so it is written for every other tokenizer.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from data_loading.export_formats.contents import Contents
from data_loading.export_formats.export_files import ExportWriter, write_parts
from data_loading.export_formats.exporter import Format
from data_loading.import_formats.raw import META, NANOGPT_DTYPE, NanoGPT
from data_loading.tokenizers.tokenizer import Tokenizer

_MOST_IDS = 1 << 16


class NanoGPTFormat(Format):
    """nanoGPT: uint16 without a header."""

    name = "nanogpt"
    has_val = True
    kind = NanoGPT()
    dtype = NANOGPT_DTYPE.name

    def problem(self, tokenizer: Tokenizer) -> str | None:
        if tokenizer.vocab_size <= _MOST_IDS:
            return None
        return (
            f"nanoGPT reads uint16, which holds {_MOST_IDS:,} ids, and tokenizer {tokenizer.name} has "
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
            write_parts(writer, [(f"{name}.bin", len(split))], self.stream(split), NANOGPT_DTYPE)
        if not contents.is_gpt2:
            with writer.file(META) as file:
                file.write(_meta(tokenizer))


def _meta(tokenizer: Tokenizer) -> bytes:
    """Pickle vocab_size, itos (the text of each id) and stoi (the id of each character that is one id)."""
    itos = {number: tokenizer.decode([number]) for number in range(tokenizer.vocab_size)}
    stoi: dict[str, int] = {}
    for number, text in itos.items():
        if len(text) == 1 and text != "\ufffd":
            stoi.setdefault(text, number)
    return pickle.dumps({"vocab_size": tokenizer.vocab_size, "itos": itos, "stoi": stoi}, protocol=4)


FORMAT = NanoGPTFormat()
