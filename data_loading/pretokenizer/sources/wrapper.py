"""A source that passes another one's text on, changed: what it does not say itself is the inner one's."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from data_loading.text_io.chunks import Chunk, Mark
from data_loading.text_io.source import Part, Pieces, Sample, Source
from data_loading.tokens.set_files import SetFiles


@dataclass
class Wrapped:
    """The inner source as it is; whoever derives from this changes its chunks."""

    inner: Part

    @property
    def total_bytes(self) -> int | None:
        return self.inner.total_bytes

    @property
    def done_bytes(self) -> int:
        return self.inner.done_bytes

    @property
    def options(self) -> dict[str, Any]:
        return self.inner.options

    @property
    def can_continue(self) -> bool:
        return self.inner.can_continue

    @property
    def what(self) -> str:
        return self.inner.what

    @property
    def argument(self) -> str:
        return self.inner.argument

    def chunks(self, start: Mark | None = None, pieces: Pieces | None = None) -> Generator[Chunk]:
        return cast("Generator[Chunk]", self.inner.chunks(start, pieces))

    def samples(self) -> list[bytes]:
        """Of the inner text: engines are compared on what is likely, not on what is exact."""
        return self.inner.samples()

    @property
    def known_documents(self) -> int | None:
        return self.inner.known_documents

    @property
    def sample_starts(self) -> Sequence[int] | None:
        return self.inner.sample_starts

    def sample(self, start: int, length: int) -> Sample:
        """Of the inner text, as in `samples`."""
        return self.inner.sample(start, length)

    def state(self) -> Any:
        return self.inner.state()

    def facts(self) -> list[dict[str, Any]]:
        return self.inner.facts()

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        return self.inner.differs(facts, files)


def unwrapped(source: Source) -> Source:
    """The source at the core, which knows the file."""
    while isinstance(source, Wrapped):
        source = source.inner
    return source
