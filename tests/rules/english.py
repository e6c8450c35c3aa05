"""Plain English: words and docstring openings that docs/style.md replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.rules.sources import Finding, Source

DENIED = {
    "told": "told",
    "tells": "tells",
    "tell_": "tell_",
    "so-many": "so many",
    "anew": "anew",
    "whoever": "whoever",
    "nobody": "nobody",
    "gone-on": "gone on",
    "goes-on-with": "goes on with",
    "stands": "stands",
    "beside": "beside",
    "that-there-is-not": "that there is not",
    "held-against": "held against",
    "mend": "(?:mend|mends|mended|mending)",
}
"""Rule name -> phrase, looked for in identifiers, docstrings, comments, messages and pages."""

OPENINGS = ("of", "what", "as", "where", "how", "those")
"""Words with which no docstring begins: its first sentence must be clear without the code below it."""

GAP = r"""(?:[\s_#"']|\bf")+"""
"""Between two words of a phrase: also in an identifier, a wrapped comment or a continued string."""


def _pattern(phrase: str) -> re.Pattern[str]:
    words = phrase.replace(" ", GAP)
    if phrase.endswith("_"):
        return re.compile(rf"(?<![A-Za-z])(?i:{words})")
    in_camel_case = rf"|(?<=[a-z]){phrase.capitalize()}(?![a-z])|{phrase.capitalize()}(?=[A-Z])"
    return re.compile(rf"(?<![A-Za-z])(?i:{words})(?![A-Za-z])" + ("" if "(" in phrase else in_camel_case))


PATTERNS = {rule: _pattern(phrase) for rule, phrase in DENIED.items()}


def english_findings(sources: Iterable[Source]) -> Iterator[Finding]:
    """Uses of a denied word or opening, one finding for each file and rule."""
    for source in sources:
        lines: dict[str, list[int]] = {}
        lowered = source.text.lower()
        for rule, pattern in PATTERNS.items():
            if re.match("[a-z]+", rule)[0] not in lowered:  # type: ignore[index]
                continue
            for match in pattern.finditer(source.text):
                lines.setdefault(rule, []).append(source.text.count("\n", 0, match.start()) + 1)
        for line, text in source.docstrings:
            opening = re.match(r"\W*(\w*)", text)[1].lower()  # type: ignore[index]
            if opening in OPENINGS:
                lines.setdefault(f"docstring-{opening}", []).append(line)
        for rule, found in lines.items():
            shown = ", ".join(map(str, found[:20]))
            yield Finding(source.path, rule, len(found), f"line {shown}")
