"""Plugins for one test: what they register is forgotten after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_run import tiny_config

from conf import Config
from tests.own_plugins import forget_plugins
from training.own_parts import facts

Own = Callable[..., Config]


@pytest.fixture(autouse=True)
def _no_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    forget_plugins()
    facts._KNOWN.clear()


@pytest.fixture
def own(tmp_path: Path) -> Own:
    """A tiny configuration with a plugin of this source."""

    def make(source: str, metrics: tuple[str, ...] = (), **training: Any) -> Config:
        file = tmp_path / "mine.py"
        file.write_text(source)
        config = tiny_config(tmp_path, **{"max_steps": 8, "evals": 2, "checkpoint_every": 5, **training})
        logging = dataclasses.replace(config.logging, metrics=list(metrics))
        return dataclasses.replace(config, plugins=[str(file)], logging=logging)

    return make
