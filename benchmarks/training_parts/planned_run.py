"""A run of ours that waits to be started, and data for it that need no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from conf.compose import Composer
from conf.request import read_run
from training.attempt.begin import create_run


def planned_run(*overrides: str) -> Path:
    """The folder of the run that `python experiments.py OVERRIDES` would start with `core.py FOLDER`."""
    from training.plan import make_plan

    plan = make_plan(read_run(overrides, Composer()), tokenize=True)
    return create_run(plan.config, str(plan.identity))


def write_ids(path: Path, tokens: int, vocabulary: int) -> Path:
    """Random ids, uint16, as a .npy; returns the path."""
    np.save(path, np.random.default_rng(0).integers(0, vocabulary, tokens, dtype=np.uint16))
    return path


def write_tokenizer(folder: Path, vocabulary: int) -> Path:
    """A tokenizer of so many words; returns its folder."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = {f"w{i}": i for i in range(vocabulary - 1)} | {"<|endoftext|>": vocabulary - 1}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
