"""A truncation in a tokenizer.json is left out, and sets that were made by obeying it are refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pretokenize_dataset
from data_loading.audit.check_set import check_set
from data_loading.find.prepare import prepare_data
from data_loading.hub_stream.encode import encoder_of
from data_loading.pretokenizer import make_set as making
from data_loading.pretokenizer import writer
from data_loading.pretokenizer.engines.registry import ENGINES, make_engine
from data_loading.pretokenizer.inputs.discover import InputOptions, open_inputs
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import JsonTokenizer
from data_loading.tokens import token_set
from data_loading.tokens import truncated_documents as cut_documents
from data_loading.tokens.token_set import open_token_set
from tests.golden_text import Golden

MOST = 5000
TRUNCATION = {"direction": "Right", "max_length": MOST, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": MOST},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "a",
}
LONG = "one document of water and words " * 3000
SHORT = ["a short document\n"] * 50


@pytest.fixture
def cutting(tmp_path: Path, tokenizer_folder: Callable[[str], Path]) -> Path:
    """Folder of a tokenizer whose file says that texts are cut and padded."""
    definition = json.loads((tokenizer_folder("gpt2") / "tokenizer.json").read_text())
    (tmp_path / "cutting").mkdir()
    text = json.dumps({**definition, "truncation": TRUNCATION, "padding": PADDING}, indent=2)
    (tmp_path / "cutting/tokenizer.json").write_text(text)
    return tmp_path / "cutting"


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make sets as the version did that obeyed a truncation; the call ends that."""
    monkeypatch.setattr(JsonTokenizer, "json", property(lambda self: json.dumps(self.definition)))
    monkeypatch.setattr(making, "engine_note", lambda tokenizer: {})
    monkeypatch.setattr(making, "choose_engine", made_by_fastokens)
    monkeypatch.setattr(token_set, "refuse_cut", lambda *args, **rest: None)
    return monkeypatch.undo


def made_by_fastokens(tokenizer: Any, samples: Any, log: Any, wanted: str) -> Any:
    return making.compared(ENGINES["huggingface" if wanted == "huggingface" else "fastokens"], tokenizer, [])


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def make(text: Path, tokenizer: Path, output: Path, **options: Any) -> dict[str, Any]:
    source = open_inputs([str(text)], InputOptions())
    return pretokenize(source, read_tokenizer(tokenizer, "cutting"), output, Options(**options)).manifest


@pytest.mark.parametrize("engine", ["fastokens", "huggingface"])
def test_every_engine_encodes_whole_documents(cutting: Path, engine: str) -> None:
    tokenizer = read_tokenizer(cutting, "cutting")
    ids, lengths = make_engine(engine, tokenizer).encode_batch([LONG.encode(), b"a"])
    assert lengths[0] > MOST
    assert lengths[1] == 1
    assert np.array_equal(ids[:-1], tokenizer.encode(LONG))


def test_every_path_gives_the_same_tokens(tmp_path: Path, cutting: Path, capsys: Any) -> None:
    tokenizer = read_tokenizer(cutting, "cutting")
    whole = tokenizer.encode(LONG)
    make(lines(tmp_path / "a.jsonl", LONG, *SHORT), cutting, tmp_path / "a.npy", workers=2)
    assert np.array_equal(np.load(tmp_path / "a.npy")[: len(whole)], whole)
    assert np.array_equal(encoder_of(tokenizer, lambda: [b"a sample"])(LONG), whole)
    data = prepare_data([LONG, *SHORT], str(cutting))
    assert np.array_equal(data.train.tokens[: len(whole)], whole)


def test_manifest_notes_truncation_that_was_ignored(tmp_path: Path, cutting: Path) -> None:
    made = make(lines(tmp_path / "a.jsonl", LONG), cutting, tmp_path / "a.npy")
    assert made["engine"]["truncation"] == "ignored"
    assert open_token_set(tmp_path / "a.npy").n_tokens == made["tokens"]


def test_cut_set_is_refused_with_the_command_that_makes_it_again(
    tmp_path: Path, cutting: Path, earlier: Callable[[], None], golden: Golden
) -> None:
    text = lines(tmp_path / "a.jsonl", *SHORT, LONG)
    cut = make(text, cutting, tmp_path / "a.npy")
    earlier()
    with golden.refused("documents-cut") as refused:
        open_token_set(tmp_path / "a.npy")
    with golden.refused("documents-cut"):
        make(text, cutting, tmp_path / "a.npy")
    assert [f.what for f in check_set(tmp_path / "a.npy") if f.ok is False] == ["engine"]
    command = str(refused.value).rpartition("pretokenize_dataset.py ")[2]
    assert pretokenize_dataset.main(shlex.split(command)) == 0
    assert open_token_set(tmp_path / "a.npy").n_tokens > cut["tokens"]


def test_cut_shards_cannot_be_appended_to(
    tmp_path: Path, cutting: Path, earlier: Callable[[], None], golden: Golden
) -> None:
    make(lines(tmp_path / "a.jsonl", LONG), cutting, tmp_path / "a", shard_tokens=4000)
    make(lines(tmp_path / "b.jsonl", *SHORT), cutting, tmp_path / "a", append=True, engine="huggingface")
    earlier()
    with golden.refused("documents-cut"):
        open_token_set(tmp_path / "a")
    with golden.refused("documents-cut"):
        make(lines(tmp_path / "c.jsonl", "c"), cutting, tmp_path / "a", append=True)


def test_sets_that_were_not_cut_are_read_as_before(
    tmp_path: Path, cutting: Path, tokenizer_folder: Callable[[str], Path], earlier: Callable[[], None]
) -> None:
    long, short = lines(tmp_path / "long.jsonl", LONG), lines(tmp_path / "short.jsonl", *SHORT)
    make(short, cutting, tmp_path / "short.npy")
    make(long, cutting, tmp_path / "reference.npy", engine="huggingface")
    make(long, tokenizer_folder("gpt2"), tmp_path / "plain.npy")
    earlier()
    for name in ("short", "reference", "plain"):
        assert open_token_set(tmp_path / f"{name}.npy").n_tokens


def test_truncation_of_the_tokenizer_in_use_counts_where_the_set_has_no_copy(
    tmp_path: Path, cutting: Path, earlier: Callable[[], None]
) -> None:
    made = make(lines(tmp_path / "a.jsonl", LONG), cutting, tmp_path / "a.npy")
    earlier()
    starts = np.zeros(1, np.uint64)
    gone = tmp_path / "gone"
    assert cut_documents.cut_at(made, gone, starts) is None
    assert cut_documents.cut_at(made, gone, starts, truncation=TRUNCATION) == MOST


def test_an_attempt_of_an_earlier_version_starts_again(
    tmp_path: Path, cutting: Path, earlier: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = lines(tmp_path / "a.jsonl", LONG, *SHORT)
    monkeypatch.setattr(writer.SetWriter, "finish", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        make(text, cutting, tmp_path / "a.npy")
    earlier()
    whole = len(read_tokenizer(cutting, "cutting").encode(LONG))
    make(text, cutting, tmp_path / "a.npy")
    assert int(np.load(tmp_path / "a.docs.npy")[1]) == whole + 1
