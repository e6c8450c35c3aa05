"""Datasets of Hugging Face: saved folders as they are made here; the hub through its two questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_loading.hub.client import Hub
from data_loading.pretokenizer.engines.bytes import BytesEngine
from data_loading.pretokenizer.inputs.concatenated import Inputs
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.sources import saved_datasets as hugging_face
from data_loading.pretokenizer.sources.json_lines import Tolerance
from data_loading.pretokenizer.sources.saved_datasets import HubDataset
from data_loading.pretokenizer.token_forecast import forecast
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from tests.golden_text import Golden

datasets = pytest.importorskip("datasets")


def ids(texts: list[str]) -> list[int]:
    return [i for text in texts for i in [*text.encode(), 256]]


class TestSavedFolder:
    def save(self, folder: Path, **splits: list[str | None]) -> Path:
        datasets.disable_progress_bars()
        made = {name: datasets.Dataset.from_dict({"text": texts}) for name, texts in splits.items()}
        datasets.DatasetDict(made).save_to_disk(str(folder))
        return folder

    def made(self, folder: Path, output: Path, **options: Any) -> list[int]:
        pretokenize(open_inputs([str(folder)], InputOptions(**options)), BytesTokenizer(), output, Options())
        return np.load(output).tolist()

    def test_train_unless_another_split_is_named(self, tmp_path: Path, golden: Golden) -> None:
        folder = self.save(tmp_path / "d", train=["a", None, "é"], test=["t"])
        assert self.made(folder, tmp_path / "x.npy") == ids(["a", "é"])
        assert self.made(folder, tmp_path / "y.npy", split="test") == ids(["t"])
        with golden.refused("saved-split-missing"):
            open_inputs([str(folder)], InputOptions(split="dev"))

    def test_shards_in_the_order_of_the_dataset(self, tmp_path: Path, golden: Golden) -> None:
        datasets.disable_progress_bars()
        texts = [f"text {number}" for number in range(40)]
        data = datasets.Dataset.from_dict({"text": texts, "id": range(40)}).shuffle(seed=3)
        data.save_to_disk(str(tmp_path / "d"), num_shards=12)
        assert self.made(tmp_path / "d", tmp_path / "x.npy") == ids(data["text"])
        with golden.refused("saved-without-splits"):
            open_inputs([str(tmp_path / "d")], InputOptions(split="train"))

    def test_a_split_of_nothing_is_told(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("x")
        for flag in ("split", "subset"):
            with golden.refused("flag-without-effect"):
                open_inputs([str(tmp_path / "a.txt")], InputOptions(**{flag: "train"}))


class Rows:
    """As an IterableDataset of the package."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def skip(self, count: int) -> Rows:
        return Rows(self.rows[count:])

    def __iter__(self) -> Any:
        return iter(self.rows)


def hub_of(values: Iterable[Any], revision: str = "abc123") -> Hub:
    rows = Rows([{"id": number, "text": value} for number, value in enumerate(values)])
    return Hub(lambda name: revision, lambda name, subset, split, revision: rows)


some_values = st.lists(st.sampled_from(["a", "", "é x", None, 3, "long " * 9]), max_size=12)


@given(values=some_values)
def test_rows_are_documents_and_each_a_place_to_go_on(values: list[Any]) -> None:
    def source() -> HubDataset:
        return HubDataset("hf://org/name", hub=hub_of(values), tolerance=Tolerance(99))

    first = source()
    whole = list(first.chunks())
    assert [chunk.data.decode() for chunk in whole] == [v for v in values if isinstance(v, str) and v]
    facts = first.facts()[0]
    assert (facts["nulls"], facts["skipped"]) == (values.count(None), values.count(3))
    assert facts["bytes"] == sum(len(chunk.data) for chunk in whole)
    for number, chunk in enumerate(whole):
        again = source()
        assert list(again.chunks(json.loads(json.dumps(chunk.mark)))) == whole[number:]
        assert again.facts() == first.facts()
        assert again.tolerance == first.tolerance


def test_a_set_of_it_is_known_by_name_and_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    asked = []

    def hub(revision: str) -> Hub:
        def rows(*question: Any) -> Rows:
            asked.append(question)
            return Rows([{"text": f"row {number}"} for number in range(50)])

        return Hub(lambda name: revision, rows)

    def opened(revision: str = "r1", **options: Any) -> Inputs:
        monkeypatch.setattr(hugging_face, "HUB", hub(revision))
        found = open_inputs(["hf://org/name"], InputOptions(subset="sub", max_documents=3, **options))
        assert isinstance(found, Inputs)
        return found

    result = pretokenize(opened(), BytesTokenizer(), tmp_path / "x.npy", Options())
    assert np.load(tmp_path / "x.npy").tolist() == ids(["row 0", "row 1", "row 2"])
    assert set(asked) == {("org/name", "sub", "train", "r1")}
    (fact,) = result.manifest["sources"]
    assert (fact["path"], fact["revision"], fact["bytes"]) == ("hf://org/name", "r1", 15)
    assert not pretokenize(opened(), BytesTokenizer(), tmp_path / "x.npy", Options()).made
    with golden.refused("output-differs"):
        pretokenize(opened("r2"), BytesTokenizer(), tmp_path / "x.npy", Options())
    files = SetFiles(tmp_path / "x.npy")
    assert opened(split="test").differs(result.manifest["sources"], files) is not None


class TestRefused:
    def test_no_network(self, golden: Golden) -> None:
        def unreachable(name: str) -> str:
            raise ConnectionError("Name or service not known")

        with golden.refused("hub-refused", numbers=False):
            HubDataset("hf://org/name", hub=Hub(unreachable, hub_of([]).rows))

    def test_a_stream_that_breaks(self, golden: Golden) -> None:
        def rows(*question: Any) -> Iterable[Any]:
            yield {"text": "a"}
            raise TimeoutError("read timed out")

        source = HubDataset("hf://org/name", hub=Hub(lambda name: "r", rows))
        chunks = source.chunks()
        assert next(chunks).data == b"a"
        with golden.refused("hub-refused", numbers=False):
            next(chunks)

    @pytest.mark.parametrize(
        "row",
        [
            {"body": "x"},
            {"text": 3},
        ],
    )
    def test_a_row_that_is_no_document(self, row: dict[str, Any], golden: Golden) -> None:
        hub = Hub(lambda name: "r", lambda *question: Rows([{"text": "a"}, row]))
        with golden.refused("bad-line"):
            list(HubDataset("hf://org/name", hub=hub).chunks())

    def test_no_name(self, golden: Golden) -> None:
        with golden.refused("hub-name-invalid"):
            HubDataset("hf://a b", hub=hub_of([]))

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with golden.refused("package-missing"):
            HubDataset("hf://org/name", hub=hub_of([]))


def test_the_package_is_asked_as_it_wants_to_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: seen.update(args=a, **k) or Rows([]))
    hugging_face.HUB.rows("org/name", "sub", "train", "r1")
    assert seen == {"args": ("org/name", "sub"), "split": "train", "revision": "r1", "streaming": True}


def test_a_stream_without_known_end_is_forecast_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**limits: int) -> Any:
        monkeypatch.setattr(hugging_face, "HUB", hub_of(["water"] * 5000))
        return forecast(
            open_inputs(["hf://org/name"], InputOptions(**limits)),
            BytesTokenizer(),
            BytesEngine(BytesTokenizer()),
        )

    assert found().tokens is None, "nothing tells how much there is"
    limited = found(max_documents=1_000_000)
    assert (limited.tokens, limited.documents) == (pytest.approx(6_000_000), 1_000_000)
    assert found(max_tokens=1_000_001).tokens == pytest.approx(1_000_002)
