"""Notes on inputs that were read: one line for each thing that can be a mistake."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.single_stream import without_mark
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import END_OF_TEXT

SHOWN = 5
_BORDER = re.compile(rb"^" + re.escape(END_OF_TEXT.encode()) + rb"\r?$", re.MULTILINE)
"""A line that other programs write between two documents of a text."""


def some(names: Sequence[str]) -> str:
    """The first names, and how many follow."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


def notes_on_inputs(inputs: Inputs, *, parses_special: bool = False) -> Iterator[str]:
    """Notes on byte order marks and borders that became text, and on a separator that divides nothing.

    Args:
        inputs: All of them were read.
        parses_special: --special-tokens parse: a border that stayed in the text has its own id.
    """
    facts = inputs.facts()
    marked = [fact["path"] for fact in facts if fact.get("byte_order_mark")]
    if marked:
        count = f"{len(marked):,} files begin" if len(marked) > 1 else "1 file begins"
        yield (
            f"{count} with a byte order mark, which was encoded as text ({some(marked)}): "
            f"{without_mark(inputs.options.get('encoding', ''))} leaves it out"
        )
    separator = inputs.options.get("document_separator")
    read = [unwrapped(part) for part in inputs.parts[: len(facts)]]
    documents = [
        fact["documents"] for part, fact in zip(read, facts, strict=True) if isinstance(part, TextFile)
    ]
    if separator is None and documents and not parses_special:
        if any(_BORDER.search(sample) for sample in inputs.samples()):
            yield (
                f"lines that are {END_OF_TEXT} were encoded as text, in one document with what is around "
                f"them: --document-separator {shlex.quote(END_OF_TEXT)} --overwrite divides there"
            )
        return
    if separator is None or not documents or max(documents) > 1 or inputs.is_limited:
        return
    inside = any(separator.encode() in sample for sample in inputs.samples())
    yield (
        f"--document-separator {separator!r} divides nothing: each of {len(documents):,} "
        f"text{'s' * (len(documents) != 1)} is one document. It has to be a line of its own"
        + (", and is found inside lines" if inside else "")
    )
