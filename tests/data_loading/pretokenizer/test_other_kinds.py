"""Inputs of another kind than their names say are refused before they are read; a plan refuses them too."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from data_loading import StreamingDataset
from data_loading.pretokenizer.inputs import discover as find_inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources.stdin import StandardInput
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError
from memory.files.file_kinds import COMPRESSIONS
from tests.golden_text import Golden
from tests.memory.files.test_file_kinds import KINDS, write

REFUSED = [kind for kind in KINDS if kind not in COMPRESSIONS | {"parquet", "arrow-stream"}]


def opened(path: Path, **options: str) -> object:
    return open_inputs([str(path)], InputOptions(**options))


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x", "x.parquet", "x.txt.gz"])
@pytest.mark.parametrize("kind", REFUSED)
def test_input_of_another_kind_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, kind)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UserError) as refused:
        opened(path)
    assert refused.value.code in ("other-kind-of-file", "encoding-not-given")


@pytest.mark.parametrize("kind", sorted(COMPRESSIONS))
def test_compression_is_read_whatever_the_name(kind: str, tmp_path: Path) -> None:
    assert opened(write(tmp_path / "x.txt", kind))


def test_text_in_utf_16_is_read_with_its_encoding(tmp_path: Path) -> None:
    assert opened(write(tmp_path / "x.txt", "utf-16"), encoding="utf-16")


def test_page_is_read_where_it_is_meant(tmp_path: Path) -> None:
    assert opened(write(tmp_path / "x.html", "html"))
    assert opened(write(tmp_path / "x.txt", "html"), document_separator="---")


@pytest.mark.parametrize("suffix", ["npy", "bin", "idx", "parquet", "arrow", "txt"])
@pytest.mark.parametrize("kind", ["zip", "npz", "torch", "pdf", "git-lfs", "html", "sqlite", "utf-16"])
def test_tokens_of_another_kind_are_refused(kind: str, suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{suffix}", kind)
    with pytest.raises(UserError) as refused:
        StreamingDataset(str(path), seq_len=4)
    assert refused.value.code in ("other-kind-of-file", "encoding-not-given", "npy-damaged")


@pytest.mark.parametrize("kind", ["zip", "git-lfs", "html", "utf-16"])
def test_refusals_name_the_kind(kind: str, tmp_path: Path, golden: Golden) -> None:
    with golden.refused("encoding-not-given" if kind == "utf-16" else "other-kind-of-file"):
        opened(write(tmp_path / "x.jsonl", kind))
    with golden.refused("npy-damaged"):
        StreamingDataset(str(write(tmp_path / "x.npy", kind)), seq_len=4)


@pytest.mark.parametrize("kind", ["zip", "git-lfs", "html", "utf-16", "gzip", "pickle"])
def test_tokenizer_of_another_kind_is_named(kind: str, tmp_path: Path, golden: Golden) -> None:
    write(tmp_path / "tokenizer.json", kind)
    with golden.refused("other-kind-of-file"):
        read_tokenizer(tmp_path, "x")


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"caf\xe9 \n" * 100, "--encoding latin-1"),
        (bytes(range(256)) * 20, "Leave it out"),
        ("天地玄黄宇宙洪荒。".encode("utf-16-le") * 50, "--encoding utf-16-le"),
    ],
)
def test_encodings_are_advised_where_they_can_help(
    data: bytes, advice: str, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "x.txt").write_bytes(b"a" + data if advice == "Leave it out" else data)
    source = open_inputs([str(tmp_path / "x.txt")], InputOptions())
    with golden.refused("undecodable"):
        pretokenize(source, BytesTokenizer(), tmp_path / "x.npy", Options(workers=0))


def test_lines_of_ids_say_the_way_out(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "x.jsonl").write_text('{"input_ids": [1, 2, 3]}\n')
    with golden.refused("bad-line"):
        pretokenize(
            open_inputs([str(tmp_path / "x.jsonl")], InputOptions()), BytesTokenizer(), tmp_path / "x.npy"
        )


def test_table_of_ids_says_the_way_out(tmp_path: Path, golden: Golden) -> None:
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables.write_table(arrow.table({"input_ids": [[1, 2], [3]]}), tmp_path / "x.parquet")
    with golden.refused("column-holds-ids"):
        opened(tmp_path / "x.parquet")
    with golden.refused("folder-not-a-set"):
        StreamingDataset(str(tmp_path), seq_len=4)


def test_advice_for_standard_input_names_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / "x").write_bytes(b"PAR1\0\0\0\0" * 9)
    with (tmp_path / "x").open("rb") as file:
        monkeypatch.setattr(find_inputs, "StandardInput", lambda: StandardInput(file.fileno()))
        with golden.refused("other-kind-of-file"):
            open_inputs(["-"], InputOptions())
