"""Notes on inputs that were read: one line for each thing that may not be what was meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.sources.wrapper import unwrapped
from data_loading.text_io.text_file import TextFile, without_mark
from data_loading.tokenizers.tokenizer import END_OF_TEXT

_SHOWN = 5
_BORDER = re.compile(rb"^" + re.escape(END_OF_TEXT.encode()) + rb"\r?$", re.MULTILINE)
"""A line that other programs write between two documents of a text."""


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
        more = " ..." if len(marked) > _SHOWN else ""
        names = ", ".join(marked[:_SHOWN])
        yield (
            f"{count} with a byte order mark, which was encoded as text ({names}{more}): "
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
