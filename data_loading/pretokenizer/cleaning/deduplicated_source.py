"""--dedup: a source without the lines or documents that came before in the set."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any, cast

from data_loading.pretokenizer.cleaning.dedup_units import UNITS, Numbering
from data_loading.pretokenizer.cleaning.duplicates import Duplicates
from data_loading.pretokenizer.sources.wrapper import Wrapped
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Pieces, Source


class Deduplicated(Wrapped):
    """The inner source without repetitions. Its text can be read after `duplicates` were prepared.

    Marks hold the inner mark and the number of the unit there.

    Args:
        place: Number of this source among those of `duplicates`.
    """

    def __init__(self, inner: Source, duplicates: Duplicates, place: int) -> None:
        super().__init__(inner)
        self.options = {**inner.options, "dedup": duplicates.unit}
        self._duplicates, self._place, self._at = duplicates, place, Numbering()

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        kept, flags = UNITS[self._duplicates.unit].kept, self._duplicates.flags
        self._at = at = Numbering(**start["at"]) if start else Numbering(self._duplicates.first[self._place])
        inner = cast("Generator[Chunk]", self.inner.chunks(start["inner"] if start else None, pieces))
        with closing(inner) as chunks:
            for chunk in chunks:
                mark = {"inner": chunk.mark, "at": dict(vars(at))}
                data = kept(chunk, at, flags)
                if data or chunk.ends_document:
                    yield chunk._replace(data=data, mark=mark)

    def facts(self) -> list[dict[str, Any]]:
        """duplicates: how many units were dropped, and their bytes."""
        counts = {self._duplicates.unit: self._at.dropped, "bytes": self._at.dropped_bytes}
        return [{**self.inner.facts()[0], "duplicates": counts}]
