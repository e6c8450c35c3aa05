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
from data_loading.text_io.source import Pieces, Source
from data_loading.tokens.set_files import SetFiles


@dataclass
class Inputs:
    """Sources of one file each, in this order.

    max_documents: the set ends after so many. max_tokens: it ends with the document in which the
    token of that number falls; that is for the job, which sees the tokens, to say (`end_after`).
    tolerance: shared with the parts. duplicates: shared with them too, where lines or documents that
    came before are dropped; then all parts are Deduplicated. notes: what a user is told beforehand.
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
    """Of the parts before the one that is read."""

    @property
    def total_bytes(self) -> int | None:
        return _sum([part.total_bytes for part in self.parts])

    @property
    def is_limited(self) -> bool:
        """It may end before its inputs do."""
        return self.max_documents is not None or self.max_tokens is not None

    @property
    def may_shrink(self) -> bool:
        """Text may be left out of it: by cleaning, or since it came before."""
        return bool(self.options.get("clean") or self.options.get("dedup"))

    @property
    def expected_bytes(self) -> int | None:
        """How much of them will be read; None where that is not known beforehand."""
        return None if self.is_limited else self.total_bytes

    @property
    def done_bytes(self) -> int:
        return self._bytes_before + self.parts[self._part].done_bytes

    @property
    def options(self) -> dict[str, Any]:
        """Those of the parts, which agree where they share one; limits where there are some."""
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
    def argument(self) -> str:
        return self.arguments[0] + (" ..." if len(self.parts) > 1 else "")

    @property
    def arguments(self) -> list[str]:
        """What a user types for them."""
        return [part.argument for part in self.parts]

    @property
    def with_duplicates(self) -> Inputs:
        """The same before any is dropped, which needs no `prepare`."""
        parts = [part.inner if isinstance(part, Deduplicated) else part for part in self.parts]
        return replace(self, parts=parts, duplicates=None)

    def prepare(self, folder: Path, log: Callable[[str], None]) -> None:
        """What has to be known before the text is read; to be called first.

        folder: what is found stays there for another attempt. Raises UserError, or OSError of a full disk.
        """
        for note in self.notes:
            log(note)
        if self.duplicates is not None:
            self.tolerance.found = 0
            self.duplicates.prepare(self.with_duplicates.parts, folder, log)

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        """Marks hold the file, the mark there, the documents before, and whether one is under way."""
        return self._chunks(start, pieces or Pieces(), self.max_documents)

    def _chunks(self, start: Mark | None, pieces: Pieces, limit: int | None) -> Generator[Chunk]:
        first, mark = (start["file"], start["mark"]) if start else (0, None)
        self.tolerance.found = 0
        self._facts = {}
        for file in range(first):
            self._take_facts(file, pieces.facts(file) or self._read_again(file, pieces))
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
                    yield Chunk(chunk.data, chunk.source, chunk.offset, chunk.ends_document, here)
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

    def _take_facts(self, file: int, facts: dict[str, Any]) -> None:
        self._facts[file] = facts
        self.tolerance.found += facts.get("skipped", 0)

    def _read_again(self, file: int, pieces: Pieces) -> dict[str, Any]:
        """Facts of a file that an earlier attempt has read, where they were lost."""
        found, documents, is_open = self.tolerance.found, 0, False
        for chunk in self.parts[file].chunks(None, pieces.from_file(file)):
            is_open = is_open or bool(chunk.data)
            if chunk.ends_document:
                documents, is_open = documents + is_open, False
        self._note_facts(file, documents, pieces)
        self.tolerance.found = found
        return self._facts[file]

    def end_after(self, documents: int, start: Mark | None, pieces: Pieces) -> None:
        """Have `facts` tell of so many documents alone. start: a mark before the last of them ends."""
        for _ in self._chunks(start, pieces, documents):
            pass

    def samples(self) -> list[bytes]:
        """Of the first, the middle and the last file."""
        places = sorted({0, len(self.parts) // 2, len(self.parts) - 1})
        found = [self.parts[place].samples() for place in places]
        if len(found) == 1:
            return found[0]
        return [_short(b"".join(samples)) for samples in found]

    def state(self) -> Any:
        return [part.state() for part in self.parts]

    def facts(self) -> list[dict[str, Any]]:
        """Of the files that `chunks` has begun to read."""
        return [self._facts[file] for file in sorted(self._facts)]

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        if len(facts) > len(self.parts) or (len(facts) < len(self.parts) and not self.is_limited):
            return f"it was made from {len(facts):,} files, and these are {len(self.parts):,}"
        differences = (part.differs([fact], files) for part, fact in zip(self.parts, facts, strict=False))
        return next(filter(None, differences), None)


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _short(sample: bytes) -> bytes:
    return sample[:SAMPLE_BYTES].decode("utf-8", "ignore").encode()
