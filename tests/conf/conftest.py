"""Fixtures of the configuration tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conf.composing.check import check
from tests.golden_text import Golden


@pytest.fixture
def refused(golden: Golden) -> Callable[..., str]:
    """Problem that a configuration has at a key; the text of all its problems is golden."""

    def problem_at(where: str, **plain: Any) -> str:
        found = {problem.where: problem.what for problem in check(plain)[1]}
        assert where in found
        golden.text("\n".join(f"{key}: {what}" for key, what in found.items()))
        return found[where]

    return problem_at
