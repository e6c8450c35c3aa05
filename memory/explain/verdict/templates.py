"""Sentences with amounts of the signals in them: `{parts.kernel:B} is the kernel's own`.

A name in braces is an attribute of Signals. The format `B` is for bytes. A sentence of which one amount is
absent, 0 or empty is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from experiment_utils.quantities import format_bytes
from memory.explain.signals import Signals

Text = str | Callable[[Signals], str | None]


class _Absent(Exception):
    pass


class _Formatter(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(kwargs["signals"], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if not value:
            raise _Absent
        return format_bytes(value) if format_spec == "B" else super().format_field(value, format_spec)


def fill(text: Text, signals: Signals) -> str:
    """The sentence; empty if it is not said."""
    if callable(text):
        return text(signals) or ""
    try:
        return _Formatter().vformat(text, (), {"signals": signals})
    except (_Absent, AttributeError):
        return ""


def first(*texts: Text) -> Callable[[Signals], str]:
    """The first of these sentences that can be said."""
    return lambda signals: next(filter(None, (fill(text, signals) for text in texts)), "")


def ours(of_ours: str, of_others: str) -> Callable[[Signals], str]:
    """The one for a run of experiments.py, or the one for another program."""
    return lambda signals: of_ours if signals.is_ours else of_others


def when(holds: Callable[[Signals], object], text: str) -> Callable[[Signals], str]:
    """The sentence if the condition holds."""
    return lambda signals: text if holds(signals) else ""


def fill_all(texts: Iterable[Text], signals: Signals) -> list[str]:
    """The sentences that can be said."""
    return [found for text in texts if (found := fill(text, signals))]
