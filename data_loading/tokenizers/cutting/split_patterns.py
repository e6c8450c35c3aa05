"""Known patterns by which byte-level tokenizers divide text.

They are written for Oniguruma, the library of regular expressions that tokenizers uses.
"""

from __future__ import annotations

from typing import Any

GPT2_PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_O200K_PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CL100K_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CL100K_PATTERNS = tuple(
    contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers + _CL100K_TAIL
    for contractions in (_CONTRACTIONS, r"'(?i:[sdmt]|ll|ve|re)")
    for numbers in (r"\p{N}{1,3}", r"\p{N}")
)
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"
)
"""tiktoken's cl100k: unlike Llama 3's, it takes the whitespace at the end of a text as one piece."""
CL100K_OF_LLAMA = _CL100K_PATTERNS[0]
KNOWN_PATTERNS = (GPT2_PATTERN, _O200K_PATTERN, *_CL100K_PATTERNS, CL100K_PATTERN)
"""Split patterns (GPT-2; o200k; cl100k as Llama 3, Qwen 2 and tiktoken write it) in which whitespace after a
character that is none always starts a new match, except for line ends in all but GPT-2's."""

TIKTOKEN_R50K_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
TIKTOKEN_CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""GPT2_PATTERN and CL100K_PATTERN, as tiktoken spells them."""


def isolates(split: dict[str, Any]) -> bool:
    """Whether each match of the pattern of this Split becomes a piece."""
    return (split.get("behavior"), split.get("invert", False)) in (("Isolated", False), ("Removed", True))


def splits_by_known_pattern(split: dict[str, Any]) -> bool:
    """Whether the pieces of a Split are the matches of a known pattern."""
    return isolates(split) and split.get("pattern", {}).get("Regex") in KNOWN_PATTERNS
