"""--clean: a source whose documents are cleaned while they are read, by the rules of cleaner.py."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, cast

from data_loading.pretokenizer.cleaning.cleaner import MOST_MARKS, Cleaner, RunTooLong
from data_loading.pretokenizer.sources.stdlib import StdlibSource
from data_loading.pretokenizer.sources.wrapper import Wrapped
from data_loading.text_io.byte_files import READ_BYTES
from data_loading.text_io.chunks import Chunk, Mark, undecodable
from data_loading.text_io.file_names import bare_name
from data_loading.text_io.source import Pieces, Source
from data_loading.text_io.text_file import TextFile
from experiment_utils.errors import UserError

CHOICES = ("normalize", "normalize-code")
CODE_SUFFIXES = (
    ".asm", ".awk", ".bash", ".bat", ".bzl", ".c", ".cc", ".cfg", ".clj", ".cljs", ".cmake", ".coffee",
    ".cpp", ".cs", ".css", ".csv", ".cu", ".cuh", ".cxx", ".d", ".dart", ".diff", ".el", ".erl", ".ex",
    ".exs", ".f", ".f90", ".f95", ".for", ".fs", ".fsx", ".go", ".gradle", ".groovy", ".h", ".hh",
    ".hpp", ".hrl", ".hs", ".html", ".hxx", ".ini", ".ipynb", ".java", ".jl", ".js", ".jsx", ".kt",
    ".kts", ".less", ".lisp", ".lua", ".m", ".mk", ".ml", ".mli", ".mm", ".nim", ".nix", ".pas",
    ".patch", ".php", ".pl", ".pm", ".proto", ".ps1", ".py", ".pyi", ".pyx", ".r", ".rb", ".rkt", ".rs",
    ".s", ".sass", ".sc", ".scala", ".scm", ".scss", ".sh", ".sql", ".sv", ".svg", ".swift", ".tcl",
    ".tex", ".tf", ".toml", ".ts", ".tsv", ".tsx", ".v", ".vb", ".vhd", ".vhdl", ".vim", ".vue", ".xml",
    ".yaml", ".yml", ".zig", ".zsh",
)  # fmt: skip
"""Suffixes of source code, and of other texts in which blanks mean something."""
_CODE_NAMES = ("makefile", "dockerfile", "cmakelists.txt")


def is_code(source: Source) -> bool:
    """Whether a source is source code, by the name of the file without the suffix of a compression."""
    if not isinstance(source, TextFile):
        return isinstance(source, StdlibSource)
    name = bare_name(PurePath(source.argument).name).lower()
    return PurePath(name).suffix in CODE_SUFFIXES or name in _CODE_NAMES


def check_choice(clean: str) -> None:
    """Raise UserError unless it is one of CHOICES."""
    if clean not in CHOICES:
        raise UserError(f"--clean {clean}: choices are {', '.join(CHOICES)}", code="clean-unknown")


@dataclass
class _Text:
    """State within a document. documents: of which no text was left. lost_bytes: dropped so far."""

    cleaner: Cleaner = field(default_factory=Cleaner)
    undecoded: str = ""
    is_read: bool = False
    is_kept: bool = False
    documents: int = 0
    lost_bytes: int = 0

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {**vars(self), "cleaner": self.cleaner.state()}


class Cleaned(Wrapped):
    """The inner source's documents, cleaned and valid UTF-8.

    Marks hold the inner mark and the state of the cleaner there. Offsets are those of the inner chunks: near
    the byte in the file, minus what was held back before it.

    Args:
        how: One of CHOICES, for the manifest.
    """

    def __init__(self, inner: Source, how: str = "normalize") -> None:
        super().__init__(inner)
        self.options = {**inner.options, "clean": how}
        self._text = _Text()

    def state(self) -> Any:
        """Another version of Unicode composes other characters, so it resumes no unfinished set."""
        return [self.inner.state(), unicodedata.unidata_version]

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        """Raises UserError for a byte that is not UTF-8, at the place that is reported without cleaning."""
        self._text = text = _restored(start["text"]) if start else _Text()
        decoder = codecs.getincrementaldecoder("utf-8")(self.inner.options["errors"])
        decoder.setstate((bytes.fromhex(text.undecoded), 0))
        inner = cast("Generator[Chunk]", self.inner.chunks(start["inner"] if start else None, pieces))
        with closing(inner) as chunks:
            for chunk in chunks:
                mark = {"inner": chunk.mark, "text": text.state()}
                data = _cleaned(chunk, decoder, text)
                if data or chunk.ends_document:
                    yield chunk._replace(data=data, mark=mark)

    def facts(self) -> list[dict[str, Any]]:
        """cleaned: characters that were dropped, documents of which nothing was left, bytes in all."""
        text, cleaner = self._text, self._text.cleaner
        counts = {
            "control_characters": cleaner.control_characters,
            "blanks": cleaner.blanks,
            "documents": text.documents,
            "bytes": text.lost_bytes,
            "unicode": unicodedata.unidata_version,
        }
        return [{**self.inner.facts()[0], "cleaned": counts}]


def _restored(state: dict[str, Any]) -> _Text:
    return _Text(**{**state, "cleaner": Cleaner(**state["cleaner"])})


def _cleaned(chunk: Chunk, decoder: codecs.IncrementalDecoder, text: _Text) -> bytes:
    """Clean in parts: a chunk can be a long document, whose characters take four bytes each."""
    found = []
    for start in range(0, len(chunk.data) or 1, READ_BYTES):
        part, is_last = chunk.data[start : start + READ_BYTES], start + READ_BYTES >= len(chunk.data)
        offset = chunk.offset + start - len(decoder.getstate()[0])
        try:
            decoded = decoder.decode(part, chunk.ends_document and is_last)
            found.append(text.cleaner.feed(decoded).encode())
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise undecodable(chunk.source, "utf-8", offset + error.start, byte) from None
        except RunTooLong:
            raise UserError(
                f"{chunk.source}: near byte {chunk.offset + start:,} there are more than {MOST_MARKS:,} "
                "combining marks in a row, which belong to one character and cannot be put in order. Is "
                "this a text? Take them out, or omit --clean",
                code="marks-run-too-long",
            ) from None
    if chunk.ends_document:
        found.append(text.cleaner.finish().encode())
    data = b"".join(found)
    text.undecoded = decoder.getstate()[0].hex()
    text.lost_bytes += len(chunk.data) - len(data)
    text.is_read, text.is_kept = text.is_read or bool(chunk.data), text.is_kept or bool(data)
    if chunk.ends_document:
        text.documents += text.is_read and not text.is_kept
        text.is_read = text.is_kept = False
    return data
