"""What a smaller vocabulary would buy is told where most of a step is the head, by formula."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny_run import tiny_config
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel

from conf.schema import Arch, Model, Tokenizer
from models.options.counts import count_parameters, flops_per_token
from training.plan.run_plan import make_plan
from training.plan.smaller_vocabulary import smaller_vocabulary

GPT2 = 50_257


def test_of_32d_with_the_vocabulary_of_gpt2_nearly_all_is_the_head() -> None:
    model, arch = Model(), Arch()
    found = smaller_vocabulary(model, arch, GPT2, 128, 128, "gpt2")
    assert found is not None
    assert found.parameters == count_parameters(model, arch, 257, 128).total == 41_152
    then, now = (flops_per_token(model, arch, size, 128) for size in (257, GPT2))
    assert found.flops_per_token == then.total
    assert found.head_share == then.head / then.total < 0.2
    assert found.times_fewer_flops == now.total / then.total > 20


@pytest.mark.parametrize(
    ("width", "vocab_size", "tokenizer"), [(512, GPT2, "gpt2"), (32, 257, "bytes"), (32, GPT2, "ids")]
)
def test_nothing_is_told_where_it_buys_nothing(width: int, vocab_size: int, tokenizer: str) -> None:
    assert smaller_vocabulary(Model(d_model=width), Arch(), vocab_size, 128, 128, tokenizer) is None


def test_the_plan_tells_it(tmp_path: Path) -> None:
    words = {f"w{i}": i for i in range(5000)} | {"<|endoftext|>": 5000}
    Library(WordLevel(words, unk_token="w0")).save(str(tmp_path / "tokenizer.json"))
    config = dataclasses.replace(tiny_config(tmp_path), tokenizer=Tokenizer(name="words", path=str(tmp_path)))
    plan = make_plan(config, tokenize=False)
    assert plan.smaller_vocabulary is not None
    assert plan.head_share > 0.9
    page = plan.render()
    assert f"{plan.head_share:.0%}" in page
    assert plan.smaller_vocabulary.line() in page
    assert plan.to_json()["smaller_vocabulary"]["vocab_size"] == 257
    of_bytes = make_plan(tiny_config(tmp_path), tokenize=False)
    assert of_bytes.smaller_vocabulary is None
    assert of_bytes.to_json()["smaller_vocabulary"] is None
    assert "tokenizer=bytes (" not in of_bytes.render()
