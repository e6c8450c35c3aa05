"""What `memory.explain` makes of a run, for its report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from experiment_utils.safe_read import read_plain_text
from memory.report.history import History
from memory.report.page import Page

if TYPE_CHECKING:
    from memory.explain import Explanation

log = logging.getLogger("memory")

BLACK_BOXES, BLACK_BOX_CHARACTERS = 4, 30_000


def why(history: History) -> Explanation | None:
    """The explanation; None where there is nothing to explain, or it fails: a report comes all the same."""
    from memory.explain import explain

    try:
        found = explain(history.evidence)
    except Exception as error:
        log.warning("%s cannot be explained: %s: %s", history.name, type(error).__name__, error)
        return None
    is_dull = found.verdict in ("healthy", "unknown") and not found.near_limit
    return None if is_dull else found


def add_black_boxes(page: Page, history: History) -> None:
    """What the run was asked for as U came near the limit: its Python stacks, its largest tensors."""
    for path in history.evidence.black_boxes[-BLACK_BOXES:]:
        try:
            told = read_plain_text(path)
        except OSError as error:
            history.notes.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        with page.folded(f"Near the limit: {path.name}"):
            page.code(told[:BLACK_BOX_CHARACTERS])


def add_why(page: Page, history: History) -> None:
    """A section, where there is something to tell."""
    found = why(history)
    if found is None:
        return
    page.heading("Why", found.confidence)
    page.text(found.sentence, "" if found.verdict == "healthy" else "bad")
    if found.advice:
        page.text("What to change, the cheapest first:")
        page.code(
            "\n".join(
                f"# {advice.text}" + (f"\n{advice.override}" if advice.override is not None else "")
                for advice in found.advice
            )
        )
    if found.evidence or found.doubts:
        with page.folded("Evidence"):
            page.items([*found.evidence, *(f"against it: {doubt}" for doubt in found.doubts)])
