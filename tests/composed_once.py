"""Commands typed in the process of the tests, without composing the same again: most of their time.

`compose_once(monkeypatch)`: what is typed a second time, by any test, has the request of the first; and our
own sweepers get the launcher directly, as Hydra hands it to them. Some tests go through Hydra.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import conf.command_line.request
import conf.composing.compose
import slurm.submit.sweep
from conf.between_keys.rules import Rule
from conf.command_line.request import (
    ENUMERATING_SWEEPERS,
    HALVING_SWEEPER,
    LOCAL_LAUNCHER,
    SLURM_LAUNCHER,
    Request,
)
from conf.composing.compose import Composer
from slurm.launch.hydra_task import RequestedRuns, RunFailed
from slurm.search.halving import search

OUR_LAUNCHERS = (LOCAL_LAUNCHER, SLURM_LAUNCHER)
LOCAL_SWEEPER = ENUMERATING_SWEEPERS[0]

_COMPOSER: list[Composer] = []
_REQUESTS: dict[tuple[Any, ...], Request] = {}
_read_request, _hand_over = conf.command_line.request.read_request, slurm.submit.sweep._hand_over


def compose_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf.composing.compose, "Composer", kept_composer)
    monkeypatch.setattr(conf.command_line.request, "read_request", _request)
    monkeypatch.setattr(slurm.submit.sweep, "_hand_over", _to_the_sweeper)


def kept_composer(
    config_dir: Any = None, config_name: str = "config", searchpath: Iterable[str] = ()
) -> Composer:
    """That of the checkout's own files, which tests do not change."""
    if config_dir is not None or config_name != "config" or list(searchpath):
        return Composer(config_dir, config_name, [*searchpath])
    if not _COMPOSER:
        _COMPOSER.append(_Kept())
    return _COMPOSER[0]


class _Kept(Composer):
    """Its answers about Hydra's own part depend on the groups that are chosen, not on values of keys."""

    def __init__(self) -> None:
        super().__init__()
        self._hydra_parts: dict[tuple[Any, ...], Any] = {}

    def hydra_part(self, choices: Mapping[str, str], arguments: list[str]) -> Any:
        key = (*sorted(choices.items()), *arguments)
        if key not in self._hydra_parts:
            self._hydra_parts[key] = super().hydra_part(choices, arguments)
        node, problems = self._hydra_parts[key]
        return node, [*problems]


def _request(
    arguments: list[str], composer: Composer, *, multirun: bool, rules: Iterable[Rule], command: str
) -> Request:
    if not (_COMPOSER and composer is _COMPOSER[0]):
        return _read_request(arguments, composer, multirun=multirun, rules=rules, command=command)
    key = (*arguments, multirun, os.environ.get("HIGHWATER_RUNS_DIR"))
    if key not in _REQUESTS:
        _REQUESTS[key] = _read_request(arguments, composer, multirun=multirun, rules=rules, command=command)
    return copy.deepcopy(_REQUESTS[key])


def _to_the_sweeper(runs: RequestedRuns, request: Request, composer: Composer) -> None:
    target = request.sweeper.get("_target_")
    if target not in (HALVING_SWEEPER, LOCAL_SWEEPER) or request.launcher.target not in OUR_LAUNCHERS:
        _hand_over(runs, request, composer)
        return
    launcher = _Launcher(runs, request.launcher.jobs)
    try:
        if target == HALVING_SWEEPER:
            search(runs, launcher)
        else:
            runs.take(launcher.launch(runs.job_overrides(), initial_job_idx=0))
    except RunFailed:
        pass


@dataclass(frozen=True)
class _Launcher:
    runs: Any
    jobs: int

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Any:
        return self.runs.launch(job_overrides, jobs=self.jobs)
