"""The sources of a run: found as any dataset is, each by itself; what differs is told of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conf.schema import Dataset, Tokenizer
from data_loading import MixedData, StreamingMixture, open_train, prepare_run, train_windows
from data_loading.find.mixed_data import names_of
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from tests.golden_text import Golden

BYTES = Tokenizer(name="bytes")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Datasets/web.txt, Datasets/code.txt and other.txt, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Datasets").mkdir()
    for name, word in (("Datasets/web", "water"), ("Datasets/code", "x = 1;"), ("other", "never")):
        Path(f"{name}.txt").write_text(f"{word} {name}\n" * 300)
    return tmp_path


def mix(sources: list[str], **options: Any) -> Dataset:
    equal = [f"1/{len(sources)}"] * len(sources)
    return Dataset(name="mix", source="mix", sources=sources, **({"weights": equal} | options))


def prepared(dataset: Dataset, **how: Any) -> MixedData:
    found = prepare_run(dataset, BYTES, **({"tokenize": True, "log": lambda line: None} | how))
    assert isinstance(found, MixedData)
    return found


def test_sources_are_names_paths_and_stems(here: Path) -> None:
    data = prepared(mix(["web", "Datasets/code", "other.txt"]))
    assert data.names == ["web", "code", "other"]
    facts = data.describe()
    assert [one["path"] for one in facts["sources"]] == [
        "Datasets/web.npy", "Datasets/code.npy", "other.npy",
    ]  # fmt: skip
    assert facts["tokens"] == sum(one["tokens"] for one in facts["sources"])
    assert [one["weight"] for one in facts["sources"]] == ["1/3"] * 3
    dataset = open_train(data, mix(["web", "Datasets/code", "other.txt"]), 16, 0, 8)
    assert isinstance(dataset, StreamingMixture)
    assert len(dataset) == train_windows(data, mix([]), 16, 8)


def test_the_fingerprint_is_that_of_the_sources_in_their_order(here: Path) -> None:
    one, other = prepared(mix(["web", "code"])), prepared(mix(["code", "web"]))
    assert one.fingerprint != other.fingerprint
    (here / "elsewhere").mkdir()
    for file in (here / "Datasets").iterdir():
        target = here / "elsewhere" / file.name
        if file.is_file():
            target.write_bytes(file.read_bytes())
    assert prepared(mix(["elsewhere/web.npy", "elsewhere/code.npy"])).fingerprint == one.fingerprint


def test_run_resumes_with_the_sets_it_began_with(here: Path) -> None:
    """More is appended to one of the sources since."""
    tokenizer, grown = BytesTokenizer(), Path("Datasets/grown")
    pretokenize(TextFile(Path("Datasets/code.txt")), tokenizer, grown, Options(shard_tokens=1000))
    sources = mix(["web", "Datasets/grown"])
    data = prepared(sources)
    pretokenize(TextFile(Path("other.txt")), tokenizer, grown, Options(append=True))
    assert prepared(sources).fingerprint != data.fingerprint
    again = prepared(sources, versions=data.describe()["sets"])
    assert (again.fingerprint, again.tokens("train")) == (data.fingerprint, data.tokens("train"))


def test_problems_name_their_sources(here: Path, golden: Golden) -> None:
    with golden.refused("dataset-not-found", "path-not-found"):
        prepared(mix(["web", "nowhere", "Datasets/gone.npy"]))


def test_text_without_tokens_is_not_tokenized(here: Path, golden: Golden) -> None:
    prepared(mix(["web"]))
    with golden.refused("not-tokenized") as missing:
        prepared(mix(["web", "code"]), tokenize=False)
    assert missing.value.text_path == Path("Datasets/code.txt")


def test_the_same_tokens_twice(here: Path, golden: Golden) -> None:
    with golden.refused("mixture-source-twice"):
        prepared(mix(["web", "Datasets/web.txt"]))


def test_other_vocabularies_are_refused_with_both_names(
    here: Path, tokenizer_folder: Callable[[str], Path], golden: Golden
) -> None:
    prepared(mix(["web"]))
    custom = Tokenizer(name="custom", path=str(tokenizer_folder("gpt2")))
    prepare_run(mix(["code"]), custom, tokenize=True, log=lambda line: None)
    with golden.refused("mixture-tokenizers-differ"):
        prepared(mix(["web", "code"]))


def test_computed_sources_and_vocabularies_of_ids(here: Path, golden: Golden) -> None:
    ids = Tokenizer(name="ids")
    chains = [f"synthetic:markov:64:20000:{seed}" for seed in (0, 1)]
    data = prepare_run(mix(chains), ids, tokenize=False)
    assert isinstance(data, MixedData)
    assert data.names == chains
    assert data.vocab_size == 64
    with golden.refused("mixture-vocabularies-differ"):
        prepare_run(mix([chains[0], "synthetic:zipf:99:20000:0"]), ids, tokenize=False)


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["c4", "Datasets/code.npy", "x/web.txt"], ["c4", "code", "web"]),
        (["x/train.npy", "y/train.npy"], ["x/train.npy", "y/train.npy"]),
        (["s3://bucket/web", "synthetic:zipf"], ["web", "synthetic:zipf"]),
    ],
)
def test_names_are_short_where_they_tell_sources_apart(sources: list[str], names: list[str]) -> None:
    assert names_of(sources) == names
