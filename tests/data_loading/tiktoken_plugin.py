"""Encodings of our own for the package tiktoken, as other packages add theirs: modules of tiktoken_ext.

Their ranks are those of the byte-pair tokenizer that the tests train.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.data_loading.conftest import tokenizer_folder_text

PATTERN = {
    "tiny_r50k": "TIKTOKEN_R50K_PATTERN",
    "tiny_cl100k": "TIKTOKEN_CL100K_PATTERN",
    "tiny_o200k": "KNOWN_PATTERNS[1]",
    "tiny_llama3": "KNOWN_PATTERNS[2]",
    "tiny_gpt2": "GPT2_PATTERN",
}
"""Encodings of known patterns, and the names of these in `split_patterns`."""
SPECIAL = {"<|endoftext|>": 800, "<tool>": 803}

MODULE = f"""
from pathlib import Path
from data_loading.tokenizers.cutting.split_patterns import *
from tiktoken.load import load_tiktoken_bpe

def made(name, pattern, special, file=None):
    file = file or Path(__file__).with_name("tiny.ranks")
    return lambda: {{"name": name, "pat_str": pattern, "mergeable_ranks": load_tiktoken_bpe(str(file)),
                    "special_tokens": special}}

SPECIAL = {SPECIAL!r}
ENCODING_CONSTRUCTORS = {{
    {"".join(f"{name!r}: made({name!r}, {pattern}, SPECIAL), " for name, pattern in PATTERN.items())}
    "unknown_pattern": made("unknown_pattern", r"\\S+ ?|\\s+", SPECIAL),
    "no_end": made("no_end", TIKTOKEN_R50K_PATTERN, {{}}),
    "spaced": made("spaced", TIKTOKEN_R50K_PATTERN, {{**SPECIAL, "a the": 804}}),
    "lined": made("lined", TIKTOKEN_R50K_PATTERN, {{**SPECIAL, "a\\n": 804}}),
    "prefixes": made("prefixes", TIKTOKEN_R50K_PATTERN, {{**SPECIAL, "<tool>s": 804}}),
    "same_id": made("same_id", TIKTOKEN_R50K_PATTERN, {{"<|endoftext|>": 300}}),
    "few_bytes": made("few_bytes", TIKTOKEN_R50K_PATTERN, SPECIAL, Path(__file__).with_name("few.ranks")),
    "far_away": made("far_away", TIKTOKEN_R50K_PATTERN, SPECIAL, "http://127.0.0.1:9/far.ranks"),
    "not_there": made("not_there", "(", SPECIAL),
}}
"""


@cache
def ranks() -> dict[bytes, int]:
    """Of the tests' own tokenizer, whose ids ascend as its merges do."""
    return ranks_of(json.loads(tokenizer_folder_text("gpt2"))["model"]["vocab"])


def ranks_of(vocab: dict[str, int]) -> dict[bytes, int]:
    """The vocabulary of a vocab.json in GPT-2's letters for bytes, in bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
    return {
        bytes(byte_of[letter] for letter in token): rank
        for token, rank in vocab.items()
        if token != "<|endoftext|>"
    }


def write_plugin(folder: Path) -> Path:
    """What has to be on the path of a process for tiktoken to know the encodings."""
    from data_loading.tokenizers.tiktoken import ranks_text

    package = folder / "tiktoken_ext"
    package.mkdir(parents=True)
    (package / "tiny.py").write_text(MODULE)
    (package / "tiny.ranks").write_text(ranks_text(ranks()))
    (package / "few.ranks").write_text(ranks_text({bytes([byte]): byte for byte in range(128)}))
    return folder


def forget() -> None:
    """Make tiktoken look for its encodings again."""
    registry: Any = import_module("tiktoken.registry")  # also where a test hides the package itself
    registry.ENCODINGS.clear()
    registry.ENCODING_CONSTRUCTORS = None
    registry._available_plugin_modules.cache_clear()
