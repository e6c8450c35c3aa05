"""What text comes from, as the job sees it: documents in chunks, from any chunk on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.content_hash import ContentHash

if TYPE_CHECKING:
    from data_loading.tokens.set_files import SetFiles


@dataclass(frozen=True)
class Sample:
    """What stands at one place of a source, for a forecast.

    texts: UTF-8, of one document each. size_bytes: what they take of the source as it lies on disk.
    documents: that end in them.
    """

    texts: list[bytes]
    size_bytes: float
    documents: int = 0


class Source(Protocol):
    """Documents to tokenize.

    what: words for messages. argument: what a user types for it. total_bytes, done_bytes: size on
    disk, and how much of it `chunks` has read so far; None where the size is not known. options:
    whatever changes ids or document borders, for the manifest. can_continue: False where the input
    is gone once it is read.
    """

    @property
    def total_bytes(self) -> int | None: ...

    @property
    def done_bytes(self) -> int: ...

    @property
    def options(self) -> dict[str, Any]: ...

    @property
    def can_continue(self) -> bool: ...

    @property
    def what(self) -> str: ...

    @property
    def argument(self) -> str: ...

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        """The text in order, from the chunk with the mark `start` on, the same chunks each time.

        pieces: digests of an earlier attempt, and where to note new ones. Raises UserError where the
        text cannot be read or decoded.
        """
        ...

    def samples(self) -> list[bytes]:
        """UTF-8 parts of start, middle and end, for comparing engines."""
        ...

    def state(self) -> Any:
        """A JSON value that differs when the input was changed, without reading it: names, sizes, times."""
        ...

    def facts(self) -> list[dict[str, Any]]:
        """The manifest's `sources`: path, bytes, content_hash ... of what `chunks` has read to its end."""
        ...

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        """How the text is not the one of these facts of the set `files`; None when it is."""
        ...


class Part(Source, Protocol):
    """One input, of which a forecast reads samples.

    known_documents: how many there are; None where only reading tells. sample_starts: bytes of it from
    which `sample` can read, in order; None: from any.
    """

    @property
    def known_documents(self) -> int | None: ...

    @property
    def sample_starts(self) -> Sequence[int] | None: ...

    def sample(self, start: int, length: int) -> Sample:
        """About `length` bytes of text from the byte `start` on. Raises UserError."""
        ...


class Pieces:
    """Digests of the pieces that were read, by file, kept in a file of lines: an attempt adds to it.

    path: None: kept in this process only. A line that a kill cut short is passed over. The facts of a
    file that was read to its end are kept as well.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[int, list[str]] = {}
        self._facts: dict[int, dict[str, Any]] = {}
        self._first = 0
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            file, number, found = json.loads(line)
        except (ValueError, TypeError):
            return
        if isinstance(found, dict):
            self._facts[file] = found
            return
        digests = self._known.setdefault(file, [])
        if number == len(digests):
            digests.append(found)

    def from_file(self, file: int) -> Pieces:
        """The same, for a source whose first file is this one."""
        view = copy.copy(self)
        view._first += file
        return view

    def content_hash(self, file: int) -> ContentHash:
        """The hash of a file, going on from what is known of it."""
        known = self._known.setdefault(self._first + file, [])
        return ContentHash(known, self._note(self._first + file, known))

    def _note(self, file: int, known: list[str]) -> Callable[[str], None]:
        def note(digest: str) -> None:
            self._write([file, len(known), digest])
            known.append(digest)

        return note

    def facts(self, file: int) -> dict[str, Any] | None:
        """What `note_facts` was told of the file."""
        return self._facts.get(self._first + file)

    def note_facts(self, file: int, facts: dict[str, Any]) -> None:
        """Keep the facts of a file that was read."""
        self._facts[self._first + file] = facts
        self._write([self._first + file, 0, facts])

    def _write(self, line: list[Any]) -> None:
        if self._path is not None:
            with open(self._path, "ab", buffering=0) as out:
                out.write(f"\n{json.dumps(line)}".encode())


def numbered(chunks: Iterator[Chunk], start: Mark | None) -> Iterator[Chunk]:
    """Chunks marked by their number; those before `start` are read again and passed over."""
    first = start["chunk"] if start else 0
    for number, chunk in enumerate(chunks):
        if number >= first:
            yield Chunk(chunk.data, chunk.source, chunk.offset, chunk.ends_document, {"chunk": number})
