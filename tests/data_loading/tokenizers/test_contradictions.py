"""Disagreements between the files of a tokenizer are logged, one line each, and change no id."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_loading.tokenizers import contradictions as tokenizer_contradictions
from data_loading.tokenizers.contradictions import contradictions
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import JsonTokenizer
from tests.golden_text import Golden

Folder = Callable[[str], Path]
END = {"content": "<|endoftext|>", "special": True, "lstrip": False}


def definition_of(folder: Folder, family: str, **changed: Any) -> dict[str, Any]:
    return {**json.loads((folder(family) / "tokenizer.json").read_text()), **changed}


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("gpt2", {"add_prefix_space": False, "eos_token": "<|endoftext|>", "model_max_length": 1024}),
        ("gpt2", {"do_lower_case": False, "added_tokens_decoder": {"0": END}}),
        ("gpt2", {"eos_token": END, "pad_token": "<none>", "add_prefix_space": None}),
        ("prefix_space", {"add_prefix_space": True}),
        ("wordpiece", {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}),
    ],
)
def test_files_that_agree_are_not_mentioned(
    family: str, config: dict[str, Any], tokenizer_folder: Folder
) -> None:
    assert list(contradictions(definition_of(tokenizer_folder, family), config, {})) == []


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("gpt2", {"add_prefix_space": True}),
        ("prefix_space", {"add_prefix_space": False}),
        ("llama2", {"add_prefix_space": False}),
        ("gpt2", {"do_lower_case": True}),
        ("wordpiece", {"do_lower_case": False}),
        ("wordpiece", {"strip_accents": False}),
        ("wordpiece", {"tokenize_chinese_chars": False}),
        ("gpt2", {"added_tokens_decoder": {"0": END, "700": {"content": "<x>"}}}),
        ("gpt2", {"added_tokens_decoder": {"3": END}}),
        ("gpt2", {"added_tokens_decoder": {"0": {**END, "lstrip": True}}}),
        ("gpt2", {"eos_token": "<none>"}),
        ("gpt2", {"bos_token": {"content": "<none>"}}),
    ],
)
def test_each_disagreement_is_one_line(
    family: str, config: dict[str, Any], tokenizer_folder: Folder, golden: Golden
) -> None:
    (line,) = contradictions(definition_of(tokenizer_folder, family), config, {})
    golden.text(line)


def test_end_of_text_on_which_the_files_differ(tokenizer_folder: Folder, golden: Golden) -> None:
    definition = definition_of(tokenizer_folder, "gpt2")
    added = [{**definition["added_tokens"][0], "content": "</s>", "id": 700}]
    more = {**definition, "added_tokens": [*definition["added_tokens"], *added]}
    (line,) = contradictions(more, {"eos_token": "</s>"}, {"eos_token": "<|endoftext|>"})
    golden.text(line)
    (line,) = contradictions(more, {}, {})
    golden.text(line)
    assert list(contradictions(more, {"eos_token": "</s>"}, {})) == []


def test_lines_are_logged_once_and_ids_are_those_of_tokenizer_json(
    tmp_path: Path,
    tokenizer_folder: Folder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenizer_contradictions, "_logged", set())
    cut = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    text = json.dumps(definition_of(tokenizer_folder, "gpt2", truncation=cut))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(text)
        (tmp_path / name / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    plain = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
    with caplog.at_level(logging.WARNING, "data_loading"):
        read = [read_tokenizer(tmp_path / name, "t") for name in ("one", "two")]
    assert len(caplog.records) == 2
    for tokenizer in read:
        assert isinstance(tokenizer, JsonTokenizer)
        assert tokenizer.content_hash == plain.content_hash
        assert tokenizer.encode("water").tolist() == plain.encode("water").tolist()
