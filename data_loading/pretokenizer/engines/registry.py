"""The engines, and the choice of one that gives the reference's ids on a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_loading.pretokenizer.engines.base import Engine, Unsupported
from data_loading.pretokenizer.engines.bytes import BytesEngine
from data_loading.pretokenizer.engines.fastokens import FastokensEngine
from data_loading.pretokenizer.engines.parity import hold_against_reference
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
"""Without what each thread holds: the interpreter, the tokenizer's tables, blocks of text that wait."""


@dataclass(frozen=True)
class Choice:
    """The chosen engine, not yet loaded, and what a manifest records of it and of its comparison."""

    engine: Engine
    facts: dict[str, Any] = field(default_factory=dict)


def check_engine(name: str) -> None:
    """Raises UserError unless `--engine` has this choice."""
    if name in REMOVED:
        raise UserError(
            f"--engine {name}: this engine was removed. Leave --engine out: the ids are the same",
            code="engine-removed",
        )
    if name not in ("auto", *ENGINES):
        raise UserError(f"--engine {name}: choices are auto, {', '.join(ENGINES)}", code="engine-unknown")


def make_engine(name: str, tokenizer: Tokenizer) -> Engine:
    """The engine of that name, loaded.

    Raises:
        UserError: no such engine, or it cannot encode with this tokenizer.
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
    """The engine for a text of which `samples` (UTF-8) are parts.

    Raises:
        UserError: no engine of the wanted name, or it cannot encode with this tokenizer.
    """
    kind = kind_to_compare(tokenizer, wanted)
    if kind is None or not isinstance(tokenizer, DefinedTokenizer):
        return _without_comparison(tokenizer, log, wanted)
    reference = ReferenceEngine.of(tokenizer)
    verdict = hold_against_reference(kind, tokenizer, samples)
    if verdict.refusal and wanted != "auto":
        raise _refused(wanted, tokenizer, verdict.refusal)
    if verdict.refusal:
        log(
            f"encoding with the reference tokenizer: {kind.name} does not take {tokenizer.name} "
            f"({verdict.refusal})"
        )
        return _alone(reference)
    fast = kind.of(tokenizer)
    if verdict.difference is not None:
        log(
            f"WARNING: {fast.name} {fast.version} gives other ids than the reference tokenizer for "
            f"{verdict.difference!r} in this text. The reference takes over: slower, exact"
        )
        return Choice(reference, {**_alone(reference).facts, "refused": f"{fast.name} {fast.version}"})
    return compared(kind, tokenizer, samples)


def kind_to_compare(tokenizer: Tokenizer, wanted: str = "auto") -> type[Engine] | None:
    """The engine that encodes if its ids are the reference's; None if there is nothing to compare.

    Raises:
        UserError: no engine of the wanted name.
    """
    check_engine(wanted)
    kind = ENGINES[DEFAULT if wanted == "auto" else wanted]
    is_compared = isinstance(tokenizer, DefinedTokenizer) and kind not in _NEVER_COMPARED
    return kind if is_compared and tokenizer.cut_rule.exists else None


def compared(kind: type[Engine], tokenizer: Tokenizer, samples: Sequence[bytes]) -> Choice:
    """An engine that gave the reference's ids on the samples."""
    fast, reference = kind.of(tokenizer), ReferenceEngine.of(tokenizer)
    facts = {"reference": f"{REFERENCE} {reference.version}", "compared_bytes": sum(map(len, samples))}
    return Choice(fast, {**_alone(fast).facts, **facts})


def chosen_before(facts: dict[str, Any], tokenizer: Tokenizer, wanted: str) -> Choice | None:
    """The engine of an earlier attempt at the same work, if it and the reference are still the same."""
    kind = kind_to_compare(tokenizer, wanted)
    if kind is None or facts.get("name") != kind.name or "compared_bytes" not in facts:
        return None
    try:
        engine, reference = kind.of(tokenizer), ReferenceEngine.of(tokenizer)
    except Unsupported:  # its package is gone
        return None
    now = {"version": engine.version, "reference": f"{REFERENCE} {reference.version}"}
    return Choice(engine, facts) if all(facts.get(name) == value for name, value in now.items()) else None


def _without_comparison(tokenizer: Tokenizer, log: Callable[[str], None], wanted: str) -> Choice:
    if not isinstance(tokenizer, DefinedTokenizer) or ENGINES.get(wanted) in _NEVER_COMPARED:
        return _alone(make_engine("bytes" if wanted == "auto" else wanted, tokenizer))
    log(
        f"tokenizer {tokenizer.name} has no known safe cut ({tokenizer.cut_rule.why_none}): each "
        "document is encoded whole, by the reference tokenizer"
    )
    return _alone(ReferenceEngine.of(tokenizer))


def _refused(name: str, tokenizer: Tokenizer, why: str) -> UserError:
    return UserError(
        f"--engine {name} cannot encode with tokenizer {tokenizer.name}: {why}", code="engine-refused"
    )


def _alone(engine: Engine) -> Choice:
    return Choice(engine, {"name": engine.name, "version": engine.version})


def most_memory_bytes(tokenizer: Tokenizer, engine: str, workers: int) -> int:
    """Bound of the anonymous memory of the process.

    Args:
        tokenizer: Of the text.
        engine: Its name, or auto. The reference takes over if its ids differ from the reference's.
        workers: Threads that encode; 0: one.

    Raises:
        UserError: no engine of that name.
    """
    side_by_side = max(1, workers)
    kind = kind_to_compare(tokenizer, engine)
    reference = ENGINES[REFERENCE].most_bytes
    if kind is None:
        return OWN_BYTES + side_by_side * _kind_alone(tokenizer).most_bytes
    compared = side_by_side * kind.most_bytes + reference
    return OWN_BYTES + max(compared, side_by_side * reference)


def _kind_alone(tokenizer: Tokenizer) -> type[Engine]:
    """The engine that is taken without a comparison."""
    return ENGINES[REFERENCE] if isinstance(tokenizer, DefinedTokenizer) else BytesEngine
