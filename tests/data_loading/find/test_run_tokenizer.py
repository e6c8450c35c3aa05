"""The tokenizer of the token set next to a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conf.schema import Dataset, Tokenizer
from data_loading.find.prepare import prepare_data
from data_loading.find.run_tokenizer import tokenizer_of_set
from data_loading.tokens.set_files import SetFiles


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * 100)
    return path


def test_is_taken_if_one_set_is_there(text: Path) -> None:
    assert tokenizer_of_set(str(text)) == []
    prepare_data(Dataset(source="text", path=str(text)), Tokenizer(name="bytes"), tokenize=True)
    assert tokenizer_of_set(str(text)) == ["tokenizer=bytes"]
    assert tokenizer_of_set(str(text.with_suffix(".npy"))) == ["tokenizer=bytes"]
    assert tokenizer_of_set(str(text.with_name("missing.txt"))) == []


@pytest.mark.parametrize(
    ("name", "expected"), [("gpt2", []), ("mine", ["tokenizer=custom", "tokenizer.path={}"])]
)
def test_of_other_names_is_the_copy_in_the_set(text: Path, name: str, expected: list[str]) -> None:
    prepare_data(Dataset(source="text", path=str(text)), Tokenizer(name="bytes"), tokenize=True)
    files = SetFiles(text.with_suffix(".npy"))
    manifest = json.loads(files.manifest.read_text())
    manifest["tokenizer"]["name"] = name
    files.manifest.write_text(json.dumps(manifest))
    files.tokenizer.mkdir(exist_ok=True)
    (files.tokenizer / "tokenizer.json").write_text("{}")
    assert tokenizer_of_set(str(text)) == [one.format(files.tokenizer) for one in expected]
