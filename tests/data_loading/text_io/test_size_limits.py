"""A line or a cell is held whole: one that is too long is an error that names it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.sources.json_lines import JsonLines
from data_loading.pretokenizer.sources.tables import TableFile
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
MB = 1 << 20


def read(part: JsonLines | TableFile) -> list[int]:
    return [len(chunk.data) for chunk in part.chunks()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_too_long(
    packed: bool, ends: bool, encoding: str, tmp_path: Path, golden: Golden
) -> None:
    line = json.dumps({"text": "a" * 5 * MB})
    data = ('{"text": "b"}\n\n' + line + "\n" * ends).encode(encoding)
    path = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(data) if packed else data)
    with golden.refused("document-too-long"):
        read(JsonLines(path, encoding=encoding, longest_bytes=4 * MB))
    assert len(b"".join(JsonLines(path, encoding=encoding, longest_bytes=4 * MB).samples())) < 4 * MB
    assert read(JsonLines(path, encoding=encoding, longest_bytes=6 * MB)) == [1, 5 * MB]


def test_what_came_before_in_a_part_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "%s"}\n' % ("a" * 700_000) * 9)
    assert read(JsonLines(path, longest_bytes=800_000)) == [700_000] * 9


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_cell_that_is_too_long(kind: str, tmp_path: Path, golden: Golden) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"a.{kind}"
    table = pa.table({"text": ["a", None, "\u00e9", "b" * 5 * MB, "c"] * 2})
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    part = TableFile(path, longest_bytes=4 * MB)
    with golden.refused("document-too-long"):
        read(part)
    start = {"part": 2, "in_part": 1, "row": 7, "nulls": 2}
    with golden.refused("document-too-long"):
        list(part.chunks(start))
    assert read(TableFile(path, longest_bytes=5 * MB)) == [1, 2, 5 * MB, 1] * 2


def test_the_flag_of_runs_raises_it(tmp_path: Path) -> None:
    import argparse

    from data_loading.pretokenizer.inputs.cli_flags import add_input_flags, open_sources

    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}')
    for given, expected in ((None, 64 * MB), ("1MB", 64 * MB), ("65MB", 65 * MB)):
        parser = argparse.ArgumentParser()
        add_input_flags(parser)
        options = parser.parse_args([str(path)])
        options.run_limit = given
        (source,) = open_sources(options)
        part = getattr(source, "parts", [source])[0]
        assert part.longest_bytes == expected
    assert open_inputs([str(path)], InputOptions(longest_bytes=7)).parts[0].longest_bytes == 7  # type: ignore[attr-defined]


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (700 << 20, 700 << 20))
import pretokenize_dataset
sys.exit(pretokenize_dataset.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_command_says_it_in_bounded_memory(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
) -> None:
    with open(tmp_path / "a.jsonl", "wb") as file:
        file.write(b'{"text": "')
        for _ in range(300):
            file.write(b"the water " * (MB // 10))
        file.write(b'"}\n')
    for tokenizer in ("bytes", str(tokenizer_folder("gpt2"))):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path / "a.jsonl"), "--tokenizer", tokenizer],
            cwd=ROOT, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        golden.text(done.stderr, numbers=False)
