"""Several inputs as one source: each in its turn, its documents counted, up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from data_loading.pretokenizer.cleaning.deduplicated_source import Deduplicated
from data_loading.pretokenizer.cleaning.duplicates import Duplicates
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.text_io.byte_files import SAMPLE_BYTES
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Compare, Pieces, Source, whole_characters


@dataclass
class Inputs:
    """Sources of one file each, in this order.

    Attributes:
        max_documents: The set ends after this many documents.
        max_tokens: The set ends with the document in which this token falls. The job, which sees the
            tokens, finds it (`end_after`).
        tolerance: Shared with the parts.
        duplicates: Shared with the parts if repeated lines or documents are dropped; then all parts are
            Deduplicated.
        notes: Lines for the user before the work.
    """

    parts: Sequence[Source]
    max_documents: int | None = None
    max_tokens: int | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    duplicates: Duplicates | None = None
    notes: Sequence[str] = ()
    _facts: dict[int, dict[str, Any]] = field(init=False, default_factory=dict)
    _part: int = field(init=False, default=0)
    _bytes_before: int = field(init=False, default=0)
    """Size of the parts before the one that is read."""

    @property
    def total_bytes(self) -> int | None:
        sizes = [part.total_bytes for part in self.parts]
        return None if None in sizes else sum(filter(None, sizes))

    @property
    def is_limited(self) -> bool:
        """Whether the set can end before its inputs do."""
        return self.max_documents is not None or self.max_tokens is not None

    @property
    def may_shrink(self) -> bool:
        """Whether cleaning or --dedup can leave text out."""
        return bool(self.options.get("clean") or self.options.get("dedup"))

    @property
    def expected_bytes(self) -> int | None:
        """Bytes that will be read; None if that is not known before."""
        return None if self.is_limited else self.total_bytes

    @property
    def done_bytes(self) -> int:
        return self._bytes_before + self.parts[self._part].done_bytes

    @property
    def options(self) -> dict[str, Any]:
        """Options of the parts, which agree if they share one, and the limits."""
        options = {name: value for part in self.parts for name, value in part.options.items()}
        limits = {"max_documents": self.max_documents, "max_tokens": self.max_tokens}
        return {**options, **{name: limit for name, limit in limits.items() if limit is not None}}

    @property
    def can_continue(self) -> bool:
        return all(part.can_continue for part in self.parts)

    @property
    def what(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].what
        return f"{len(self.parts):,} files ({self.parts[0].what} to {self.parts[-1].what})"

    @property
    def with_duplicates(self) -> Inputs:
        """The same before --dedup drops anything, which needs no `prepare`."""
        parts = [part.inner if isinstance(part, Deduplicated) else part for part in self.parts]
        return replace(self, parts=parts, duplicates=None)

    def prepare(self, folder: Path, log: Callable[[str], None]) -> None:
        """Log the notes, and find the duplicates. Call it before the text is read.

        Args:
            folder: Keeps what is found for another attempt.

        Raises:
            UserError: the text cannot be read.
            OSError: the disk is full.
        """
        for note in self.notes:
            log(note)
        if self.duplicates is not None:
            self.tolerance.found = 0
            self.duplicates.prepare(self.with_duplicates.parts, folder, log)

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        """Marks hold the file, the mark in it, the documents before, and whether one is open."""
        return self._chunks(start, pieces or Pieces(), self.max_documents)

    def _chunks(self, start: Mark | None, pieces: Pieces, limit: int | None) -> Generator[Chunk]:
        first, mark = (start["file"], start["mark"]) if start else (0, None)
        self.tolerance.found = 0
        self._facts = {}
        for file in range(first):
            facts = pieces.facts(file) or self._read_again(file, pieces)
            self._facts[file] = facts
            self.tolerance.found += facts.get("skipped", 0)
        documents, is_open = (start["documents"], start["open"]) if start else (0, False)
        before = sum(facts["documents"] for facts in self._facts.values())
        self._bytes_before = sum(part.total_bytes or 0 for part in self.parts[:first])
        for file in range(first, len(self.parts)):
            self._part = file
            chunks = self.parts[file].chunks(mark, pieces.from_file(file))
            with closing(cast("Generator[Chunk]", chunks)):  # so that the facts are those of what was read
                for chunk in chunks:
                    here = {"file": file, "mark": chunk.mark, "documents": documents, "open": is_open}
                    is_open = is_open or bool(chunk.data)
                    if chunk.ends_document:
                        documents, is_open = documents + is_open, False
                    yield chunk._replace(mark=here)
                    if documents == limit:
                        break
            self._note_facts(file, documents - before, pieces)
            if documents == limit:
                return
            mark, before = None, documents
            if file + 1 < len(self.parts):
                self._bytes_before += self.parts[file].total_bytes or 0

    def _note_facts(self, file: int, documents: int, pieces: Pieces) -> None:
        self._facts[file] = {**self.parts[file].facts()[0], "documents": documents}
        pieces.note_facts(file, self._facts[file])

    def _read_again(self, file: int, pieces: Pieces) -> dict[str, Any]:
        """Facts of a file that an earlier attempt has read, if they were lost."""
        found, documents, is_open = self.tolerance.found, 0, False
        for chunk in self.parts[file].chunks(None, pieces.from_file(file)):
            is_open = is_open or bool(chunk.data)
            if chunk.ends_document:
                documents, is_open = documents + is_open, False
        self._note_facts(file, documents, pieces)
        self.tolerance.found = found
        return self._facts[file]

    def end_after(self, documents: int, start: Mark | None, pieces: Pieces) -> None:
        """Limit `facts` to the first `documents` documents. start: a mark before the last of them ends."""
        for _ in self._chunks(start, pieces, documents):
            pass

    def samples(self) -> list[bytes]:
        """UTF-8 parts of the first, the middle and the last file."""
        places = sorted({0, len(self.parts) // 2, len(self.parts) - 1})
        found = [self.parts[place].samples() for place in places]
        return (
            found[0] if len(found) == 1 else [whole_characters(b"".join(one)[:SAMPLE_BYTES]) for one in found]
        )

    def state(self) -> Any:
        return [part.state() for part in self.parts]

    def facts(self) -> list[dict[str, Any]]:
        """Facts of the files that `chunks` has begun to read."""
        return [self._facts[file] for file in sorted(self._facts)]

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        if len(facts) > len(self.parts) or (len(facts) < len(self.parts) and not self.is_limited):
            return f"it was made from {len(facts):,} files, and these are {len(self.parts):,}"
        differences = (part.differs([fact], compare) for part, fact in zip(self.parts, facts, strict=False))
        return next(filter(None, differences), None)


def as_inputs(source: Source | Inputs) -> Inputs:
    """The source as inputs of one part."""
    return source if isinstance(source, Inputs) else Inputs([source])
