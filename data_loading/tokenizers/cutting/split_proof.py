"""Prove from a pattern itself that a cut before a space changes no piece of a Split pre-tokenizer.

A word character is here a printable ASCII character other than the space, or one of
`word_boundaries.letters`; the cut is before a space that follows one. Oniguruma takes the matches of a
pattern one after another. Those of the two parts are those of the whole if

1. in no alternative a part that can match a space comes after one that can match a word character. So no
   match lies across the cut, and one that reaches it cannot be longer in the whole;
2. nothing looks behind, and what looks ahead does so directly behind a character that is no word character,
   which is not at the cut.

If an alternative matches a lone space, there is always a border at the cut. A step without one may come
before a step with one: the next step finds the same on each side of the cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from math import prod

from data_loading.tokenizers.cutting.word_boundaries import letters

_TOKEN = re.compile(
    r"""(?P<look>\(\?!\\S\)|\(\?=\\s\)|\$|\\[zZ])
    |(?P<open>\(\?(?:i?:)|\((?!\?))
    |(?P<close>\))
    |(?P<or>\|)
    |(?P<atom>\[(?:(?!&&)[^\[\]\\]|\\[^pPx]|\\[pP]\{\^?\w+\}|\\x\{[0-9A-Fa-f]+\})+\]
        |\\[pP]\{\^?\w+\}|\\x\{[0-9A-Fa-f]+\}|\\u[0-9A-Fa-f]{4}|\\[^\w\s]|\\[ sSdDwWrnt]|[^\\\[\](){}*+?.^$|])
    |(?P<times>[*+?][+?]?|\{\d+(?:,\d*)?\}(?![+?]))""",
    re.VERBOSE,
)
_MOST = 1000
_ONCE_AT_MOST = re.compile(r"\?[+?]?|\{1\}|\{0,1\}")


class NoProof(Exception):
    """Why nothing is proved of a pattern."""


@dataclass(frozen=True)
class _Atom:
    """One character class.

    least: times that it has to match; repeats: it can match more than once; keeps_space: it need not match,
    but takes a space where there is one and does not give it back (`?+`, `*+`).
    """

    space: bool
    word: bool
    least: int = 1
    repeats: bool = False
    looks_ahead: bool = False
    keeps_space: bool = False


@lru_cache(maxsize=32)
def ends_at_space(pattern: str) -> bool:
    """Whether there is always a border before a space that follows a word character.

    Raises:
        NoProof: pieces may change where a text is cut there.
    """
    alternatives = _alternatives(_tokens(pattern))
    for atoms in alternatives:
        _check(atoms)
    return any(_matches_lone_space(atoms) for atoms in alternatives)


def _check(atoms: list[_Atom]) -> None:
    if not any(atom.least for atom in atoms):
        raise NoProof("a match can be empty")
    has_word, before = False, None
    for atom in atoms:
        if atom.looks_ahead:
            if before is None or before.word or not before.least:
                raise NoProof("it looks ahead behind a word")
            continue
        if atom.space and (has_word or (atom.word and atom.repeats)):
            raise NoProof("a match can have a space behind a word")
        has_word, before = has_word or atom.word, atom


def _matches_lone_space(atoms: list[_Atom]) -> bool:
    needed = [atom for atom in atoms if atom.least or atom.looks_ahead or atom.keeps_space]
    return len(needed) == 1 and needed[0].least == 1 and needed[0].space


def _tokens(pattern: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(pattern):
        found = _TOKEN.match(pattern, place)
        if found is None:
            raise NoProof(f"nothing is known of {pattern[place : place + 8]!r} in it")
        yield found
        place = found.end()


def _alternatives(tokens: Iterator[re.Match[str]], depth: int = 0) -> list[list[_Atom]]:
    """The atoms of each alternative to the end of the group; a group in it multiplies them."""
    done, units = list[list[_Atom]](), list[list[list[_Atom]]]()
    for token in tokens:
        kind, text = token.lastgroup, token.group()
        if kind == "times":
            if not units:
                raise NoProof(f"nothing is known of {text!r} in it")
            units[-1] = _repeated(units[-1], text)
        elif kind == "or":
            done += _in_a_row(units)
            units = []
        elif kind == "close":
            if not depth:
                raise NoProof("nothing is known of ')' in it")
            return done + _in_a_row(units)
        elif kind == "open":
            units.append(_alternatives(tokens, depth + 1))
        elif kind == "look":
            units.append([[_Atom(False, False, least=0, looks_ahead=True)]])
        else:
            units.append([[_atom(text)]])
    if depth:
        raise NoProof("nothing is known of '(' in it")
    return done + _in_a_row(units)


def _in_a_row(units: list[list[list[_Atom]]]) -> list[list[_Atom]]:
    if prod(map(len, units)) > _MOST:
        raise NoProof("it has too many alternatives")
    return [list(chain.from_iterable(some)) for some in product(*units)]


def _repeated(unit: list[list[_Atom]], times: str) -> list[list[_Atom]]:
    counts = [int(count) for count in re.findall(r"\d+", times)]
    if counts != sorted(counts):
        raise NoProof(f"nothing is known of {times!r} in it")
    least = counts[0] if counts else int(times[0] == "+")
    is_once = _ONCE_AT_MOST.fullmatch(times) is not None
    is_kept = times in ("?+", "*+") and any(atom.space for atoms in unit for atom in atoms)
    if len(unit) == 1 and len(unit[0]) == 1 and not unit[0][0].looks_ahead:
        atom = unit[0][0]
        return [
            [
                replace(
                    atom,
                    least=min(atom.least, 1) * least,
                    repeats=atom.repeats or not is_once,
                    keeps_space=atom.keeps_space or is_kept,
                )
            ]
        ]
    found = list(unit) if least < 2 else []
    if not is_once:
        found += _in_a_row([unit, unit])
    if not least:
        found.append([_Atom(False, False, least=0, keeps_space=is_kept)])
    return found


@lru_cache(maxsize=256)
def _atom(text: str) -> _Atom:
    from tokenizers import Regex, pre_tokenizers

    steps = [pre_tokenizers.Split(Regex(one), "removed", invert=True) for one in (text, f"(?i:{text})")]
    space, *words = (
        any(step.pre_tokenize_str(some) for step in steps)
        for some in (" ", "".join(map(chr, range(0x21, 0x7F))), "".join(map(chr, letters())))
    )
    return _Atom(space=space, word=any(words))
