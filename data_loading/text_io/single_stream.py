"""What sources that are one stream of bytes have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.text_io.byte_files import ByteFile, ByteStream
from data_loading.text_io.text_difference import text_difference

if TYPE_CHECKING:
    from data_loading.tokens.set_files import SetFiles


class OfStream:
    """A source that reads one stream: its size and name are those of the stream."""

    path: Path
    encoding: str
    _stream: ByteStream

    @property
    def total_bytes(self) -> int | None:
        return self._stream.total_bytes

    @property
    def done_bytes(self) -> int:
        return self._stream.done_bytes

    @property
    def can_continue(self) -> bool:
        return self._stream.can_continue

    @property
    def what(self) -> str:
        return self._stream.argument

    @property
    def argument(self) -> str:
        return self._stream.argument

    @property
    def stream_name(self) -> str:
        """What messages about its bytes begin with."""
        return self._stream.name

    def raw(self) -> Iterator[bytes]:
        """Its bytes from the start, once more."""
        return (data for data, _ in self._stream.read())

    @property
    def plain_file(self) -> ByteFile | None:
        """Its file, where the bytes of that are the text, so that it can be read from any place on."""
        stream = self._stream
        is_text = isinstance(stream, ByteFile) and stream.compression is None and self.encoding == "utf-8"
        return stream if is_text and isinstance(stream, ByteFile) else None

    def state(self) -> Any:
        return self._stream.state()

    def differs(self, facts: list[dict[str, Any]], files: SetFiles) -> str | None:
        if not self.can_continue:
            return (
                f"{self._stream.name} is read only once, so it cannot be compared with what it was made from"
            )
        return text_difference(self.path, facts[0] if len(facts) == 1 else {}, files)
