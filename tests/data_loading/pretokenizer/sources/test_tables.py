"""Parquet and Arrow files: one document a row, in bounded memory, from any row on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources import table_parts
from data_loading.pretokenizer.sources.tables import TableFile
from data_loading.text_io.content_hash import file_content_hash
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.data_loading.conftest import hostile_text
from tests.golden_text import Golden
from tests.searched import examples

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).resolve().parents[4]


def write(path: Path, texts: list[str | None], part: int = 1000, kind: Any = None, **columns: Any) -> Path:
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, kind or pa.string()), **columns})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=part)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table, max_chunksize=part)
    return path


def documents(source: TableFile) -> list[str]:
    return [chunk.data.decode() for chunk in source.chunks()]


both = pytest.mark.parametrize("suffix", [".parquet", ".arrow"])


@both
def test_field_of_a_struct(suffix: str, tmp_path: Path) -> None:
    meta = pa.array([{"n": 1, "text": "one"}, None, {"n": 3, "text": "three"}])
    path = write(tmp_path / f"a{suffix}", ["a", "b", "c"], 2, meta=meta)
    assert documents(TableFile(path, "meta.text")) == ["one", "three"]


@both
def test_names_of_columns_and_fields_can_hold_dots(suffix: str, tmp_path: Path) -> None:
    outer, inner = pa.array([{"z": "outer"}]), pa.array([{"b.c": "inner"}])
    path = write(tmp_path / f"a{suffix}", ["a"], 2, **{"x.y": outer, "a": inner})
    assert documents(TableFile(path, "x.y.z")) == ["outer"]
    assert documents(TableFile(path, "a.b.c")) == ["inner"]


@both
@settings(max_examples=examples(30))
@given(
    texts=st.lists(st.none() | hostile_text, max_size=8),
    part=st.integers(1, 5),
    batch=st.sampled_from([1, 40, 4 << 20]),
    kind=st.sampled_from(["string", "large_string", "dictionary"]),
)
def test_rows_are_documents_and_each_a_place_to_go_on(
    suffix: str, texts: list[str | None], part: int, batch: int, kind: str, tmp_path: Path
) -> None:
    types = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }
    path = write(tmp_path / f"a{suffix}", texts, part, types[kind])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_parts, "BATCH_BYTES", batch)
        source = TableFile(path)
        whole = list(source.chunks())
        assert [chunk.data.decode() for chunk in whole] == [text for text in texts if text]
        assert source.done_bytes == path.stat().st_size
        assert source.facts()[0]["nulls"] == texts.count(None)
        for number, chunk in enumerate(whole):
            again = TableFile(path)
            assert list(again.chunks(json.loads(json.dumps(chunk.mark)))) == whole[number:]
            assert again.facts() == source.facts()
        assert source.facts()[0]["content_hash"] == file_content_hash(path)


@both
def test_a_set_of_it(suffix: str, tmp_path: Path, golden: Golden) -> None:
    path = write(tmp_path / f"a{suffix}", ["é", None, "", "x y"])
    said: list[str] = []
    source = open_inputs([str(path)], InputOptions())
    result = pretokenize(source, BytesTokenizer(), tmp_path / "a.npy", Options(), said.append)
    assert np.load(tmp_path / "a.npy").tolist() == [*"é".encode(), 256, *b"x y", 256]
    assert (result.manifest["sources"][0]["nulls"], result.manifest["documents"]) == (1, 2)
    golden.text("\n".join(said), numbers=False)
    assert not pretokenize(source, BytesTokenizer(), tmp_path / "a.npy").made


def test_parquet_is_known_by_its_content(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["x"]).rename(tmp_path / "a")
    source = open_inputs([str(tmp_path / "a")], InputOptions())
    assert [chunk.data for chunk in source.chunks()] == [b"x"]


@both
class TestRefused:
    def test_a_column_that_is_not_there(self, suffix: str, tmp_path: Path, golden: Golden) -> None:
        path = write(tmp_path / f"a{suffix}", ["x"])
        with golden.refused("column-missing"):
            TableFile(path, "body")

    def test_a_column_of_something_else(self, suffix: str, tmp_path: Path, golden: Golden) -> None:
        path = write(tmp_path / f"a{suffix}", ["x"])
        with golden.refused("column-not-text"):
            TableFile(path, "id")

    def test_cut_short(self, suffix: str, tmp_path: Path, golden: Golden) -> None:
        path = write(tmp_path / f"a{suffix}", ["some text"] * 5000, part=100)
        whole = path.read_bytes()
        for length in (8, len(whole) // 2, len(whole) - 9):
            path.write_bytes(whole[:length])
            with golden.refused("table-damaged"):
                documents(TableFile(path))

    def test_changed_while_it_is_read(self, suffix: str, tmp_path: Path, golden: Golden) -> None:
        path = write(tmp_path / f"a{suffix}", ["x"])
        source = TableFile(path)
        documents(source)
        path.write_bytes(path.read_bytes() + b"more")
        with golden.refused("changed-while-read"):
            source.facts()

    def test_without_the_package(
        self, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        path = write(tmp_path / f"a{suffix}", ["x"])
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with golden.refused("package-missing"):
            TableFile(path)


def test_a_compressed_table_is_refused(tmp_path: Path, golden: Golden) -> None:
    import gzip

    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "a.parquet", ["x"]).read_bytes()))
    with golden.refused("table-compressed"):
        open_inputs([str(path)], InputOptions())


def test_bytes_that_are_no_text_are_told_with_the_row(tmp_path: Path, golden: Golden) -> None:
    binary = pa.array([b"x", b"caf\xe9"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": binary}), tmp_path / "a.parquet")
    source = open_inputs([str(tmp_path / "a.parquet")], InputOptions())
    with golden.refused("undecodable"):
        pretokenize(source, BytesTokenizer(), tmp_path / "a.npy")
    mended = open_inputs([str(tmp_path / "a.parquet")], InputOptions(errors="replace"))
    assert pretokenize(mended, BytesTokenizer(), tmp_path / "a.npy").made


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, golden: Golden) -> None:
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    with golden.refused("column-twice"):
        open_inputs([str(tmp_path / "a.parquet")], InputOptions())


def test_columns_that_hold_strings_are_named(tmp_path: Path, golden: Golden) -> None:
    table = pa.table({"text": [["a"]], "other": [{"x": "string"}], "body": ["words"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with golden.refused("column-not-text"):
        TableFile(tmp_path / "a.parquet")


@pytest.mark.slow
def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """One row group of 20 and of 200 MB of text."""
    peaks = []
    for rows in (10_000, 100_000):
        texts: list[str | None] = [f"{number} " * 300 for number in range(rows)]
        path = write(tmp_path / f"{rows}.parquet", texts, part=10**9)
        code = (
            "import sys; from pathlib import Path\n"
            "from data_loading.pretokenizer.sources.tables import TableFile\n"
            "print(sum(len(c.data) for c in TableFile(Path(sys.argv[1])).chunks()))\n"
            "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert int(done.stdout.split()[0]) == sum(len(text) for text in texts if text)
        peaks.append(int(done.stdout.split()[1]))
    assert peaks[1] < peaks[0] + 40_000, peaks


TAKE_OUT = """
import sys
from pathlib import Path
from data_loading.pretokenizer.sources.tables import TableFile

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10

source = TableFile(Path(sys.argv[1]))
if sys.argv[1].endswith("parquet"):
    import pyarrow.parquet
before = peak()
source.sample(0, 1000)
print(sum(len(chunk.data) for chunk in source.chunks()))
print(peak() - before)
"""


@pytest.mark.parametrize("how", ["dictionary", "unlike rows", "arrow", "arrow views"])
def test_texts_are_taken_out_by_their_size(how: str, tmp_path: Path) -> None:
    """300 MB, most of it from kilobytes: a text that is written once and stands in many rows."""
    path, rows, few = tmp_path / ("a.arrow" if how.startswith("arrow") else "a.parquet"), 200, 0
    text = "the water rose " * 100_000
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    if how == "arrow views":
        view = np.array([len(text), int.from_bytes(text[:4].encode(), "little"), 0, 0] * rows, "<i4")
        buffers = [None, pa.py_buffer(view), pa.py_buffer(text.encode())]
        texts = pa.Array.from_buffers(pa.string_view(), rows, buffers)
    table = pa.table({"text": texts})
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    elif how == "dictionary":
        pq.write_table(table, path, compression="zstd")
    else:
        few = 50_000
        table = pa.table({"text": ["x"] * few + [text] * rows})
        pq.write_table(table, path, use_dictionary=False, write_batch_size=1)
    done = subprocess.run(
        [sys.executable, "-c", TAKE_OUT, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    size, grown = map(int, done.stdout.split())
    assert size == rows * len(text) + few
    assert grown < 200, grown
