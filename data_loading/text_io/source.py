"""Source of documents as the job reads it: in chunks, from any chunk on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_loading.text_io.byte_files import SAMPLE_BYTES
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.content_hash import ContentHash

Compare = Callable[[Path, dict[str, Any]], str | None]
"""(file, a manifest's facts of it) -> how its text differs; None: it is the same."""


@dataclass(frozen=True)
class Sample:
    """Text at one place of a source.

    texts: UTF-8, of one document each. size_bytes: their size in the source as it is on disk.
    documents: how many end in them.
    """

    texts: list[bytes]
    size_bytes: float
    documents: int = 0


class Source:
    """Documents of one input. A custom source is a subclass, with a row in `inputs/discover.py`.

    Attributes:
        what: Name in messages.
        argument: What a user types for it.
        total_bytes: Size on disk; None if it is not known.
        done_bytes: How much of that `chunks` has read so far.
        options: All that changes ids or document borders, for the manifest.
        can_continue: False if the input can be read only once.
        is_one_document: Whether it has one document, whatever its length.
        sample_starts: Bytes from which `sample` can read, in order; None: any.
    """

    what: str
    argument: str
    total_bytes: int | None
    done_bytes: int
    options: dict[str, Any]
    can_continue: bool
    is_one_document: bool = False
    sample_starts: Sequence[int] | None

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Iterator[Chunk]:
        """Yield the text in order, the same chunks each time.

        Args:
            start: Mark of the first chunk to yield; None: from the beginning.
            pieces: Digests of an earlier attempt, which gets those of this one too.

        Raises:
            UserError: the text cannot be read or decoded.
        """
        raise NotImplementedError

    def sample(self, start: int, length: int) -> Sample:
        """About `length` bytes of text from the byte `start` on. Raises UserError."""
        raise NotImplementedError

    def samples(self) -> list[bytes]:
        """UTF-8 of start, middle and end, for comparing engines."""
        places, total = self.sample_starts or [0], self.total_bytes or 0
        if len(places) > 1:
            places = [places[number] for number in sorted({0, len(places) // 2, len(places) - 1})]
        elif self.sample_starts is None and total > 3 * SAMPLE_BYTES:
            places = [0, total // 2, total - SAMPLE_BYTES]
        length = SAMPLE_BYTES if len(places) > 1 else 3 * SAMPLE_BYTES
        found = [b"".join(self.sample(place, length).texts) for place in places]
        return [whole_characters(text[:length]) for text in found]

    def state(self) -> Any:
        """A JSON value that changes with the input, without reading it: names, sizes, times."""
        raise NotImplementedError

    def facts(self) -> list[dict[str, Any]]:
        """The manifest's `sources`: path, bytes, content_hash ... of what `chunks` has read."""
        raise NotImplementedError

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        """The difference between the text and that of a manifest's `sources`; None if there is none."""
        raise NotImplementedError


def whole_characters(data: bytes) -> bytes:
    """Valid UTF-8 out of a part of a text that can begin and end inside a character."""
    return data.decode("utf-8", "ignore").encode()


class Pieces:
    """Digests of the pieces that were read, by file, and facts of each file that was read to its end.

    path: a file of lines to which each attempt appends; None: kept in this process only. A line that a
    kill cut short is skipped.
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
        """Hash of a file, which starts with the pieces that are known."""
        number = self._first + file
        known = self._known.setdefault(number, [])

        def note(digest: str) -> None:
            self._write([number, len(known), digest])
            known.append(digest)

        return ContentHash(known, note)

    def facts(self, file: int) -> dict[str, Any] | None:
        """Facts of a file that `note_facts` got."""
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
    """Chunks marked by their number; those before `start` are read again and skipped."""
    first = start["chunk"] if start else 0
    for number, chunk in enumerate(chunks):
        if number >= first:
            yield chunk._replace(mark={"chunk": number})
