"""Which datasets there are, and where they are found here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import data_loading
from data_loading import __main__ as command
from data_loading.find.catalogue import found_sets, list_datasets
from data_loading.find.locate import places_named
from data_loading.hub.named_datasets import REGISTRY
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden

ASKED_FOR = (
    "fineweb", "fineweb-edu", "pile", "tiny_shakespeare", "shakespeare", "wikitext103", "openwebtext", "c4",
    "dclm",
)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Datasets/ with a set of one file, one of shards, a text, a lone file and a broken set."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Datasets"
    folder.mkdir()
    (folder / "c4.txt").write_text("one line of text\n" * 50)
    pretokenize(TextFile(folder / "c4.txt"), BytesTokenizer(), folder / "c4.npy", Options(workers=0))
    options = Options(workers=0, shard_tokens=300)
    pretokenize(TextFile(folder / "c4.txt"), BytesTokenizer(), folder / "inner" / "shards", options)
    (folder / "openwebtext.txt").write_text("only text")
    np.save(folder / "lone.npy", np.arange(70, dtype="<u2"))
    np.save(folder / "broken.npy", np.arange(70, dtype="<u2"))
    (folder / "broken.npy.json").write_text("{")
    return folder


def test_every_known_name_is_described(here: Path) -> None:
    described = {one.name: one for one in data_loading.list_datasets()}
    assert set(ASKED_FOR) == set(REGISTRY)
    assert set(REGISTRY) < set(described)
    assert all(described[name].streaming and described[name].what for name in ASKED_FOR)
    assert described["dclm"].hub == "hf://mlfoundations/dclm-baseline-1.0-parquet"
    assert described["c4"].hub == "hf://allenai/c4:en"
    assert (described["stdlib"].hub, described["stdlib"].tokenizer) == (None, "bytes")
    assert "text" not in described


def test_what_lies_here(here: Path) -> None:
    described = {one.name: one for one in list_datasets()}
    assert (described["c4"].found, described["c4"].tokens) == (("Datasets/c4.npy",), 851)
    assert (described["openwebtext"].found, described["openwebtext"].tokens) == (
        ("Datasets/openwebtext.txt",),
        None,
    )
    assert described["pile"].found == ()


def test_token_sets_below_datasets(here: Path) -> None:
    found = {one.path: one for one in found_sets()}
    assert set(found) == {f"Datasets/{name}" for name in ("c4.npy", "inner/shards", "lone.npy", "broken.npy")}
    for name in ("c4.npy", "inner/shards"):
        one = found[f"Datasets/{name}"]
        assert (one.tokens, one.documents, one.tokenizer) == (851, 1, "bytes")
    assert (found["Datasets/lone.npy"].tokens, found["Datasets/lone.npy"].tokenizer) == (70, None)
    assert found["Datasets/broken.npy"].tokens is None
    assert found["Datasets/broken.npy"].problem


@pytest.mark.parametrize(
    ("file", "is_missing"),
    [("shard_00001.npy", True), ("shard_00001.npy", False), ("shard_00001.docs.npy", True)],
)
def test_incomplete_set_is_listed_with_its_problem(
    here: Path, capsys: pytest.CaptureFixture[str], file: str, is_missing: bool, golden: Golden
) -> None:
    shard = here / "inner" / "shards" / file
    shard.unlink() if is_missing else os.truncate(shard, 200)
    (here / "bad.npy").write_bytes(b"nothing")
    assert command.main(["list"]) == 0
    golden.text("\n".join(line for line in capsys.readouterr().out.splitlines() if "Datasets/" in line))


def test_a_pipe_is_no_token_file(here: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    os.mkfifo(here / "pipe.npy")
    assert "Datasets/pipe.npy" not in {one.path for one in found_sets()}
    assert command.main(["show", "Datasets/pipe.npy"]) == 2
    golden.text(capsys.readouterr().err)


def test_list(here: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert command.main(["list"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in ASKED_FOR)
    golden.text(told)
    assert command.main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in found["datasets"]} > set(ASKED_FOR)
    assert len(found["token_sets"]) == 4


def test_without_a_folder_of_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(["list"]) == 0
    golden.text(capsys.readouterr().out)


def test_a_name_that_begins_another(here: Path, golden: Golden) -> None:
    for name in ("fineweb", "fineweb-edu"):
        np.save(here / f"{name}.npy", np.arange(70, dtype="<u2"))
    for name in ("fineweb", "fineweb-edu"):
        assert places_named(name)[0].tokens == Path(f"Datasets/{name}.npy")
    (here / "fineweb.npy").unlink()
    with golden.refused("dataset-not-found"):
        places_named("fineweb")


class TestShow:
    def show(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        assert command.main(["show", "Datasets/c4.npy", "--seq-len", "17", *arguments]) == 0
        return capsys.readouterr().out

    def test_a_batch_as_text(self, here: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        golden.text(self.show(capsys, "--batch-size", "4", "--rows", "2", "--order", "sequential"))

    def test_what_a_loader_reads(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from itertools import islice

        dataset = data_loading.StreamingDataset("Datasets/c4.npy", seq_len=17, seed=3)
        batch = next(islice(dataset.loader(batch_size=8), 5, None))
        told = self.show(capsys, "--batch", "5", "--batch-size", "8", "--rows", "99", "--seed", "3", "--json")
        found = json.loads(told)
        assert [row["input_ids"] for row in found["rows"]] == batch["input_ids"].tolist()
        assert [row["labels"] for row in found["rows"]] == batch["labels"].tolist()
        assert (found["epoch_batches"], found["shape"]) == (6, [5, 17])

    def test_another_split(self, here: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
        golden.text(self.show(capsys, "--split", "val"))

    @pytest.mark.parametrize(
        "arguments",
        [
            ["Datasets/none"],
            ["Datasets/c4.npy", "--seq-len", "17", "--batch", "99"],
            ["Datasets/c4.npy", "--batch", "-1", "--seq-len", "17"],
            ["Datasets/c4.npy", "--seed", "-1"],
            ["Datasets/c4.npy", "--seq-len", "0"],
            ["Datasets/c4.npy", "--seq-len", "4096"],
            ["Datasets/c4.npy", "--seq-len", "17", "--split", "all"],
            ["Datasets/openwebtext.txt"],
        ],
        ids=" ".join,
    )
    def test_what_cannot_be_shown(
        self, here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], golden: Golden
    ) -> None:
        assert command.main(["show", *arguments]) == 2
        golden.text(capsys.readouterr().err)

    def test_without_a_tokenizer(
        self, here: Path, capsys: pytest.CaptureFixture[str], golden: Golden
    ) -> None:
        assert command.main(["show", "Datasets/lone.npy", "--seq-len", "8", "--batch-size", "2"]) == 0
        golden.text(capsys.readouterr().out, "ids")
        assert command.main(["show", "Datasets/lone.npy", "--seq-len", "8", "--tokenizer", "bytes"]) == 0
        golden.text(capsys.readouterr().out, "text")


def test_a_stream_is_shown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl").write_text('{"text": "one line of text"}\n' * 50)
    (tmp_path / "test.jsonl").write_text('{"text": "held out"}\n' * 50)
    arguments = ["show", f"hf://{tmp_path}", "--tokenizer", "bytes", "--seq-len", "17", "--batch-size", "4"]
    assert command.main([*arguments, "--rows", "1", "--batch", "2"]) == 0
    golden.text(capsys.readouterr().out, "batch 2", numbers=False)
    assert command.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [4, 17]
    assert command.main([*arguments, "--batch", "99"]) == 2
    golden.text(capsys.readouterr().err, "no such batch")
    assert command.main([*arguments, "--split", "val"]) == 0
    golden.text(capsys.readouterr().out, "val")


def test_removed_bench_names_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench", "Datasets/c4", "--json"]) == 2
    assert "benchmarks/loading.py" in capsys.readouterr().err
