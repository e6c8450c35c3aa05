"""Parts of tables: row groups of parquet, batches of Arrow, and the texts of one column in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from data_loading.text_io.byte_files import READ_BYTES
from data_loading.text_io.size_limits import TooLong

BATCH_BYTES = 4 << 20
"""Text that is read at a time."""
_MOST_ROWS = 1024
_READ_AT_ONCE_BYTES = 32 << 20
"""Most text that the rows of one read can hold, unless it is one row."""


class Parts(Protocol):
    """Row groups or batches of a file. kind: for messages. schema: pyarrow's. rows: in all of them."""

    kind: str
    count: int
    rows: int
    rows_before: list[int]
    schema: Any

    def __init__(self, path: Path, column: str) -> None: ...

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        """Yield (values of the column, about how many bytes of the file are read). Raises TooLong."""
        ...


class ParquetParts:
    kind = "parquet"

    def __init__(self, path: Path, column: str) -> None:
        import pyarrow.parquet as pq

        # Buffered, a column is read page by page; a row group may be as large as the file.
        self._file = pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES)
        self._column, self._bytes = column, path.stat().st_size
        self.schema, self.count = self._file.schema_arrow, self._file.num_row_groups
        groups = [self._file.metadata.row_group(number).num_rows for number in range(self.count)]
        self.rows, self.rows_before = sum(groups), [0, *accumulate(groups)][:-1]

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        metadata = self._file.metadata
        before = sum(metadata.row_group(number).num_rows for number in range(part))
        for column in self._columns(part):
            for values in _values(column, longest_bytes):
                before += len(values)
                yield values, self._bytes * before // max(1, metadata.num_rows)

    def _columns(self, part: int) -> Iterator[Any]:
        """The column's rows in order, as arrays of about BATCH_BYTES.

        A text that is stored once can be in any number of rows, so a read takes only as many rows as fit
        if each is the longest that the row group can hold: most often one, for 8 us.
        """
        import pyarrow as pa

        group = self._file.metadata.row_group(part)
        chunks = map(group.column, range(group.num_columns))
        encoded = next(c.total_uncompressed_size for c in chunks if c.path_in_schema == self._column)
        at_once = max(1, min(_MOST_ROWS, _READ_AT_ONCE_BYTES // max(1, encoded)))
        held, rows, size = list[Any](), 0, 0
        for batch in self._file.iter_batches(at_once, [part], [self._column], use_threads=False):
            column = column_of(batch, self._column)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            held.append(column)
            rows += at_once
            size += column.nbytes
            if size >= BATCH_BYTES or rows >= _MOST_ROWS:
                found, held, rows, size = held, [], 0, 0
                del batch, column
                yield found.pop() if len(found) == 1 else pa.concat_arrays(found)
        if held:
            yield pa.concat_arrays(held)


class ArrowParts:
    """Batches of a stream, in one mapped file."""

    kind = "an Arrow stream"

    def __init__(self, path: Path, column: str) -> None:
        import pyarrow as pa

        self._map = pa.memory_map(str(path))
        reader = pa.ipc.open_stream(self._map)
        self.schema, self._column = reader.schema, column
        self._batches, self._ends = [], []
        for batch in reader:
            self._batches.append(batch)
            self._ends.append(self._map.tell())
        self.count = len(self._batches)
        lengths = [len(batch) for batch in self._batches]
        self.rows, self.rows_before = sum(lengths), [0, *accumulate(lengths)][:-1]

    def read(self, part: int, longest_bytes: int) -> Iterator[tuple[list[bytes | None], int]]:
        for values in _values(column_of(self._batches[part], self._column), longest_bytes):
            yield values, self._ends[part]


def columns_of(schema: Any) -> dict[str, Any]:
    """Types of the columns by name, those inside of structs as `a.b`. schema: pyarrow's, or a struct type."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for field in schema:
        found[field.name] = field.type
        if pa.types.is_struct(field.type):
            found |= {f"{field.name}.{name}": kind for name, kind in columns_of(field.type).items()}
    return found


def column_of(batch: Any, name: str) -> Any:
    """A column of a batch. `a.b`: column b of the struct a, unless it is a column's name."""
    import pyarrow.compute as pc

    path = _path_of(batch.schema, name)
    assert path is not None, name
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if path[1:] else column


def _path_of(fields: Any, name: str) -> list[int] | None:
    """Positions of a column of `columns_of`, from the outside in. fields: a schema, or a struct type."""
    import pyarrow as pa

    found = {field.name: number for number, field in enumerate(fields)}
    if name in found:
        return [found[name]]
    for outer, number in found.items():  # a name can hold dots
        field = fields.field(number)
        if name.startswith(f"{outer}.") and pa.types.is_struct(field.type):
            inner = _path_of(field.type, name[len(outer) + 1 :])
            if inner is not None:
                return [number, *inner]
    return None


def is_text(kind: Any) -> bool:
    """Whether a column of this type (pyarrow's) holds strings."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _values(column: Any, longest_bytes: int) -> Iterator[list[bytes | None]]:
    """Values of an array, BATCH_BYTES at a time or one row.

    Raises TooLong before a long one is copied; its place is counted from the rows not yet yielded.
    """
    import pyarrow as pa

    is_dictionary = pa.types.is_dictionary(column.type)
    lengths = _lengths(column.dictionary if is_dictionary else column)
    for start in range(0, len(column), _MOST_ROWS):
        rows = column.slice(start, _MOST_ROWS)
        found = lengths.take(rows.indices) if is_dictionary else lengths.slice(start, _MOST_ROWS)
        sizes = found.fill_null(0).to_numpy(zero_copy_only=False)
        if sizes.max() > longest_bytes:
            row = int((sizes > longest_bytes).argmax())
            raise TooLong(row, int(sizes[row]))
        ends, first = sizes.cumsum(dtype=np.int64), 0
        while first < len(rows):
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + BATCH_BYTES, "right")))
            piece = rows.slice(first, stop - first)
            piece = piece.dictionary_decode() if is_dictionary else piece
            yield piece.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
            first = stop


def _lengths(texts: Any) -> Any:
    """Length of each text in bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string_view(texts.type):
        return pc.binary_length(texts)
    views = np.frombuffer(texts.buffers()[1], "<i4")[::4]  # views of 16 bytes, the length first
    return pa.array(views[texts.offset : texts.offset + len(texts)], mask=~texts.is_valid().to_numpy(False))
