"""Wording is pinned in golden texts only; what is left becomes less."""

from __future__ import annotations

import json

import pytest

from tests.sentences import LIMITS, count


@pytest.mark.slow
def test_no_folder_pins_more_sentences() -> None:
    """Pin a code, a state, a key or a number instead, and the wording with `golden`."""
    limits = json.loads(LIMITS.read_text())
    more = {folder: number for folder, number in count().items() if number > limits.get(folder, 0)}
    assert more == {}, f"limits: {limits}"
