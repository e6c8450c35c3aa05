"""Where a text may be cut that tiktoken encodes: as `cuts` says it, argued from the patterns.

tiktoken takes the matches of a pattern one after another and encodes each by itself, so a cut changes
no id when the matches of the two parts are those of the whole. For each pattern here that holds
before a space (0x20) behind printable ASCII (0x21-0x7E) or a character outside ASCII that is no whitespace:

1. A border lies there. No alternative matches a space behind something that is no whitespace: the
   optional ` ?` or `[^\\r\\n\\p{L}\\p{N}]?` is the first character of its match, `[\\r\\n]*` and
   `[\\r\\n/]*` hold no space, and all else that matches whitespace matches nothing but whitespace.
2. The left part has the matches of the whole. It ends in a character that is no whitespace, so what
   looks ahead (`$`, `(?!\\S)`, the end of a run of whitespace) looks at most at that character; letters,
   digits, marks and contractions stop at the end of the part as they would have stopped at the space.
3. The right part has the matches of the whole: matching begins at the border in both, and nothing looks
   behind itself.

Behind a line feed and before a character that is neither whitespace nor "/" the same holds for the patterns
of cl100k and o200k: no alternative goes on from a line feed to such a character, and the whitespace before
the border, which ends in a line feed, is taken to its end by `[\\r\\n]*`, `\\s*[\\r\\n]` or, at the end of a
part, `\\s++$`: the same match.

Where no alternative matches a line feed behind something else either, which is GPT-2's kind of pattern,
1 to 3 hold for line feeds as well. Possessive and greedy quantifiers are alike in all of this.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_loading.pretokenizer.cuts import LINE_FEED, SPACE, CutRule
from data_loading.pretokenizer.split_patterns import GPT2_PATTERN, KNOWN_PATTERNS

R50K_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
LINE_FEED_TOO = (R50K_PATTERN, GPT2_PATTERN)
TIKTOKEN_PATTERNS = (R50K_PATTERN, CL100K_PATTERN, *KNOWN_PATTERNS)
"""Those of tiktoken 0.14 (gpt2, r50k, p50k; cl100k; o200k) and those that other tokenizers made of them."""


def tiktoken_cut_rule(pattern: str, parsed: Iterable[str]) -> CutRule:
    """The safe cuts. parsed: special tokens that become ids; the text between two is divided by itself.

    Such a token is looked for from left to right in the text itself, so one that does not lie across a cut
    is found in a part as in the whole.
    """
    if pattern not in TIKTOKEN_PATTERNS:
        return CutRule(why_none="a pattern that is not known")
    parsed = tuple(parsed)
    before: tuple[int, ...] = (SPACE, LINE_FEED) if pattern in LINE_FEED_TOO else (SPACE,)
    for text in parsed:
        for cut in before:
            if any(text[i] == chr(cut) and not text[i - 1].isspace() for i in range(1, len(text))):
                before = tuple(byte for byte in before if byte != cut)
        if SPACE not in before:
            return CutRule(why_none=f"the special token {text!r} matches across a space")
    at_lines = pattern not in LINE_FEED_TOO and not any("\n" in text for text in parsed)
    return CutRule(before=before, behind_words=True, at_lines=at_lines)
