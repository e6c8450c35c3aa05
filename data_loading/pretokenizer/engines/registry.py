"""The engines, and the choice of one that gives the reference's ids on a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.bytes import BytesEngine
from data_loading.pretokenizer.engines.fastokens import FastokensEngine
from data_loading.pretokenizer.engines.parity import difference_on
from data_loading.pretokenizer.engines.reference import ReferenceEngine
from data_loading.tokenizers.tokenizer import DefinedTokenizer, Tokenizer
from experiment_utils.errors import UserError

__all__ = ["ENGINES", "Choice", "Engine", "choose_engine", "make_engine"]

ENGINES: dict[str, type[Engine]] = {
    "bytes": BytesEngine,
    "fastokens": FastokensEngine,
    "huggingface": ReferenceEngine,
}
DEFAULT, REFERENCE = "fastokens", "huggingface"
REMOVED = ("gigatoken", "splintr", "tiktoken")
"""Engines of earlier versions, which manifests of sets still name."""
_NEVER_COMPARED = (BytesEngine, ReferenceEngine)
"""The ids of these are right by definition."""

OWN_BYTES = 200 << 20
"""Memory that all threads share: the interpreter, the tokenizer's tables, blocks of text that wait."""


@dataclass(frozen=True)
class Choice:
    """The chosen engine, and what a manifest records of it and of its comparison."""

    engine: Engine
    facts: dict[str, Any]


def check_engine(name: str) -> None:
    """Check a value of `--engine`. Raises UserError."""
    if name in REMOVED:
        raise UserError(
            f"--engine {name}: this engine was removed. Leave --engine out: the ids are the same",
            code="engine-removed",
        )
    if name not in ("auto", *ENGINES):
        raise UserError(f"--engine {name}: choices are auto, {', '.join(ENGINES)}", code="engine-unknown")


def make_engine(name: str, tokenizer: Tokenizer) -> Engine:
    """Load the engine of that name.

    Raises:
        UserError: There is no such engine, or it cannot encode with this tokenizer.
    """
    check_engine(name)
    try:
        engine = ENGINES[name].of(tokenizer)
        engine.load()
    except Unsupported as why:
        raise _refused(name, tokenizer, str(why)) from None
    return engine


def choose_engine(
    tokenizer: Tokenizer, samples: Sequence[bytes], log: Callable[[str], None], wanted: str = "auto"
) -> Choice:
    """Choose an engine that gives the reference's ids on samples of the text.

    Args:
        tokenizer: Tokenizer of the text.
        samples: Parts of the text, UTF-8.
        log: Gets a line if the reference takes over.
        wanted: Name of an engine, or auto.

    Raises:
        UserError: There is no engine of the wanted name, or it cannot encode with this tokenizer.
    """
    kind = kind_to_compare(tokenizer, wanted)
    if kind is None or not isinstance(tokenizer, DefinedTokenizer):
        return _without_comparison(tokenizer, log, wanted)
    try:
        choice = compared(kind, tokenizer, samples)
        choice.engine.load()
        difference = difference_on(choice.engine, tokenizer, samples)
    except Unsupported as why:
        if wanted != "auto":
            raise _refused(wanted, tokenizer, str(why)) from None
        log(f"encoding with the reference tokenizer: {kind.name} does not take {tokenizer.name} ({why})")
        return _alone(ReferenceEngine(tokenizer))
    if difference is None:
        return choice
    refused = f"{kind.name} {choice.engine.version}"
    log(
        f"WARNING: {refused} gives other ids than the reference tokenizer for {difference!r} in this text. "
        "The reference takes over: slower, exact"
    )
    reference = _alone(ReferenceEngine(tokenizer))
    return Choice(reference.engine, {**reference.facts, "refused": refused})


def kind_to_compare(tokenizer: Tokenizer, wanted: str = "auto") -> type[Engine] | None:
    """The engine that encodes if its ids are the reference's; None if there is nothing to compare.

    Raises:
        UserError: There is no engine of the wanted name.
    """
    check_engine(wanted)
    kind = ENGINES[DEFAULT if wanted == "auto" else wanted]
    is_compared = isinstance(tokenizer, DefinedTokenizer) and kind not in _NEVER_COMPARED
    return kind if is_compared and tokenizer.cut_rule.exists else None


def compared(kind: type[Engine], tokenizer: Tokenizer, samples: Sequence[bytes]) -> Choice:
    """The choice of an engine that gives the reference's ids on the samples. Raises Unsupported."""
    fast = kind.of(tokenizer)
    facts = {"reference": _reference(tokenizer), "compared_bytes": sum(map(len, samples))}
    return Choice(fast, {**_alone(fast).facts, **facts})


def chosen_before(facts: dict[str, Any], tokenizer: Tokenizer, wanted: str) -> Choice | None:
    """The engine of an earlier attempt at the same work, if it and the reference are still the same."""
    kind = kind_to_compare(tokenizer, wanted)
    if kind is None or facts.get("name") != kind.name or "compared_bytes" not in facts:
        return None
    try:
        engine = kind.of(tokenizer)
    except Unsupported:
        return None
    now = {"version": engine.version, "reference": _reference(tokenizer)}
    return Choice(engine, facts) if facts.items() >= now.items() else None


def _reference(tokenizer: Tokenizer) -> str:
    return f"{REFERENCE} {ReferenceEngine(tokenizer).version}"


def _without_comparison(tokenizer: Tokenizer, log: Callable[[str], None], wanted: str) -> Choice:
    if not isinstance(tokenizer, DefinedTokenizer) or ENGINES.get(wanted) in _NEVER_COMPARED:
        return _alone(make_engine("bytes" if wanted == "auto" else wanted, tokenizer))
    log(
        f"tokenizer {tokenizer.name} has no known safe cut ({tokenizer.cut_rule.why_none}): each "
        "document is encoded whole, by the reference tokenizer"
    )
    return _alone(ReferenceEngine(tokenizer))


def _refused(name: str, tokenizer: Tokenizer, why: str) -> UserError:
    return UserError(
        f"--engine {name} cannot encode with tokenizer {tokenizer.name}: {why}", code="engine-refused"
    )


def _alone(engine: Engine) -> Choice:
    return Choice(engine, {"name": engine.name, "version": engine.version})


def most_memory_bytes(tokenizer: Tokenizer, engine: str, workers: int) -> int:
    """Bound of the anonymous memory of the process.

    Args:
        tokenizer: Tokenizer of the text.
        engine: Name of the engine, or auto. The reference takes over if the ids differ.
        workers: Threads that encode; 0: one.

    Raises:
        UserError: There is no engine of that name.
    """
    threads, reference = max(1, workers), ReferenceEngine.most_bytes
    kind = kind_to_compare(tokenizer, engine)
    if kind is not None:
        return OWN_BYTES + max(threads * kind.most_bytes + reference, threads * reference)
    alone = ReferenceEngine if isinstance(tokenizer, DefinedTokenizer) else BytesEngine
    return OWN_BYTES + threads * alone.most_bytes
