"""Keys and flags that would do nothing are refused, each by its name; those at their default never are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from conf import schema
from data_loading.find.mixed_data import prepare_mixture
from data_loading.find.prepare import prepare_data
from data_loading.pretokenizer.inputs import discover as find_inputs
from data_loading.pretokenizer.inputs.cli_flags import open_sources
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from pretokenize_dataset import parser
from tests.data_loading.export_formats.conftest import set_of, tokenized, written
from tests.golden_text import Golden

BYTES = schema.Tokenizer(name="bytes")
OF_TEXTS = {"document_separator": "x", "encoding": "latin-1", "errors": "replace"}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Tokens of each kind: a lone file, a pair of another program, computed ones, one document, many."""
    np.save(tmp_path / "lone.npy", np.arange(2000, dtype=np.uint16) % 250)
    written("llm.c", tmp_path / "pair", set_of([[n % 251] * 9 for n in range(300)]))
    (tmp_path / "one.txt").write_text("one document " * 200)
    pretokenize(TextFile(tmp_path / "one.txt"), BytesTokenizer(), tmp_path / "one.npy", Options(workers=0))
    tokenized(tmp_path / "many.txt", " ".join(f"word{n}" for n in range(300)))
    paths = {name: str(tmp_path / name) for name in ("lone.npy", "pair", "one.npy", "many.npy")}
    return {**paths, "computed": "synthetic:markov:64:100K:1"}


def prepared(path: str, **keys: Any) -> Any:
    return prepare_data(schema.Dataset(source="text", path=path, **keys), BYTES, tokenize=False)


@pytest.mark.parametrize("place", ["lone.npy", "pair", "computed", "one.npy", "many.npy"])
def test_defaults_are_never_refused(place: str, places: dict[str, str]) -> None:
    assert prepared(places[place]).tokens("train")
    assert prepared(places[place], encoding="UTF8").tokens("train")


@pytest.mark.parametrize("place", ["lone.npy", "pair", "computed"])
@pytest.mark.parametrize("key", OF_TEXTS)
def test_keys_of_texts_are_refused_for_tokens(
    place: str, key: str, places: dict[str, str], golden: Golden
) -> None:
    with golden.refused("key-without-effect"):
        prepared(places[place], **{key: OF_TEXTS[key]})


def test_key_that_the_set_was_made_with_is_taken(places: dict[str, str]) -> None:
    assert prepared(places["many.npy"], document_separator="-").tokens("train")


@pytest.mark.parametrize(("key", "value"), [("val_fraction", 0.3), ("val_tokens", 100)])
def test_share_of_a_pair_is_refused(key: str, value: Any, places: dict[str, str], golden: Golden) -> None:
    with golden.refused("key-without-effect"):
        prepared(places["pair"], **{key: value})
    assert prepared(places["many.npy"], **{key: value}).tokens("val")


@pytest.mark.parametrize("documents", ["masked", "separate"])
def test_documents_of_one_document_are_refused(
    documents: str, places: dict[str, str], golden: Golden
) -> None:
    with golden.refused("key-without-effect"):
        prepared(places["one.npy"], documents=documents)
    assert prepared(places["many.npy"], documents=documents).tokens("train")
    mix = schema.Dataset(
        source="mix",
        sources=[places["one.npy"], places["many.npy"]],
        documents=documents,
        weights=["0.5", "0.5"],
    )
    assert prepare_mixture(mix, BYTES, tokenize=False).tokens("train")


def inputs(*arguments: str) -> Any:
    return open_sources(parser().parse_args(arguments))


@pytest.mark.parametrize(
    "flags",
    [
        ["--encoding=latin-1"], ["--errors=replace"], ["--skip-bad=3"], ["--split=train"], ["--subset=x"],
        ["--text-field=x"], ["--document-separator=x"],
    ],
)  # fmt: skip
def test_flags_are_refused_for_stdlib(flags: list[str], golden: Golden) -> None:
    assert inputs("stdlib")
    with golden.refused("flag-without-effect"):
        inputs("stdlib", *flags)


@pytest.mark.parametrize("name", ["errors", "encoding"])
def test_flags_are_refused_for_decoded_inputs(
    name: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    class Decoded:
        argument = "hf://a/b"
        options: ClassVar = {"errors": "strict", "text_field": "text"}

    monkeypatch.setitem(find_inputs.ARGUMENTS, "hf://", lambda *_: Decoded())  # type: ignore[arg-type, return-value]
    value = {"errors": "replace", "encoding": "latin-1"}[name]
    with golden.refused("flag-without-effect"):
        open_inputs(["hf://a/b"], InputOptions(**{name: value}))


def test_flags_are_refused_for_tables(tmp_path: Path, golden: Golden) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "t.parquet")
    table = str(tmp_path / "t.parquet")
    for flags in ({"encoding": "latin-1"}, {"skip_bad": 3}, {"document_separator": "x"}):
        with golden.refused("flag-without-effect"):
            open_inputs([table], InputOptions(**flags))
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "a.txt").write_text("a")
    all_kinds = [table, str(tmp_path / "a.jsonl"), str(tmp_path / "a.txt")]
    options = InputOptions(encoding="latin-1", skip_bad=3, document_separator="x", text_field="text")
    assert open_inputs(all_kinds, options)
