"""Base of sources that change the text of another source."""

from __future__ import annotations

from typing import Any

from data_loading.text_io.source import Compare, Sample, Source


class Wrapped(Source):
    """The inner source. Subclasses change its chunks, options and facts."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def is_one_document(self) -> bool:  # type: ignore[override]
        return self.inner.is_one_document

    def sample(self, start: int, length: int) -> Sample:
        """Sample of the inner text, which is likely rather than exact."""
        return self.inner.sample(start, length)

    def samples(self) -> list[bytes]:
        return self.inner.samples()

    def state(self) -> Any:
        return self.inner.state()

    def differs(self, facts: list[dict[str, Any]], compare: Compare) -> str | None:
        return self.inner.differs(facts, compare)


def unwrapped(source: Source) -> Source:
    """The innermost source, which knows the file."""
    while isinstance(source, Wrapped):
        source = source.inner
    return source
