"""--dedup: a source without the lines or documents that came before in the set, and what wraps inputs so."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

from data_loading.pretokenizer.cleaning.dedup_units import UNITS, Numbering
from data_loading.pretokenizer.cleaning.duplicates import Duplicates
from data_loading.pretokenizer.sources.wrapper import Wrapped
from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Pieces


@dataclass
class Deduplicated(Wrapped):
    """The inner source without repetitions. place: of this source among those that `duplicates` tells of.

    Marks hold the inner mark and the number of the unit there. Nothing can be read before
    `duplicates` were prepared.
    """

    duplicates: Duplicates
    place: int
    _at: Numbering = field(init=False, default_factory=Numbering)

    @property
    def options(self) -> dict[str, Any]:
        return {**self.inner.options, "dedup": self.duplicates.unit}

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        kept, flags = UNITS[self.duplicates.unit].kept, self.duplicates.flags
        self._at = at = Numbering(**start["at"]) if start else Numbering(self.duplicates.first[self.place])
        inner = cast("Generator[Chunk]", self.inner.chunks(start["inner"] if start else None, pieces))
        with closing(inner) as chunks:
            for chunk in chunks:
                mark = {"inner": chunk.mark, "at": dict(vars(at))}
                data = kept(chunk, at, flags)
                if data or chunk.ends_document:
                    yield Chunk(data, chunk.source, chunk.offset, chunk.ends_document, mark)

    def facts(self) -> list[dict[str, Any]]:
        """duplicates: how many units were dropped, and their bytes."""
        counts = {self.duplicates.unit: self._at.dropped, "bytes": self._at.dropped_bytes}
        return [{**self.inner.facts()[0], "duplicates": counts}]
