"""Runs of Weights & Biases: one for each run of ours, whose id is our identity.

Offline, a run of W&B is a folder, and of two folders with one id `wandb sync` lets the later replace the
earlier. So a folder always has the whole series, and takes the place of the ones before it. Online the run
on the server is continued after its last step.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.export.run_facts import RunFacts, nested
from analysis.export.series import Point
from experiment_utils.errors import UserError

FOLDER = "wandb"
PROJECT = "highwater"
MODES = ("offline", "online", "disabled")
_INIT_TIMEOUT_S = 60.0


def mode() -> str:
    """The mode of WANDB_MODE; without it nothing leaves the machine.

    Raises:
        UserError: it says something else.
    """
    said = {"dryrun": "offline", "run": "online"}.get(found := os.environ.get("WANDB_MODE", "offline"), found)
    if said not in MODES:
        raise UserError(f"WANDB_MODE={said}: expected {' or '.join(MODES[:2])}", code="no-such-mode")
    return said


def id_of(facts: RunFacts) -> str:
    """Our identity; of a CSV of another program a hash of its place."""
    return facts.identity or hashlib.sha256(str(facts.folder.resolve()).encode()).hexdigest()


class WandbRun:
    """One run. after: the last step that the server has, 0 where there is none."""

    def __init__(self, facts: RunFacts, place: Path, project: str | None = None) -> None:
        """place: the folder in which W&B makes its own.

        Raises:
            UserError: W&B refuses to start; the message has no keys.
        """
        # Else it sends reports of itself; it looks when it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb: Any = importlib.import_module("wandb")  # checked alike where it is not there

        self._id, self._mode = id_of(facts), mode()
        place.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            mode=self._mode,
            silent=True,
            console="off",
            init_timeout=_INIT_TIMEOUT_S,
            program="highwater",
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        self._is_offline = self._mode != "online"
        self._before = list((place / FOLDER).glob(f"offline-run-*-{self._id}")) if self._is_offline else []
        self._run: Any = wandb.init(
            project=project or os.environ.get("WANDB_PROJECT") or PROJECT,
            id=self._id,
            name=facts.label,
            group=facts.study,
            tags=[tag[:64] for tag in facts.tags if tag] or None,
            notes=facts.notes or None,
            dir=str(place),
            config={**nested(facts.config), **facts.counts},
            resume=None if self._is_offline else "allow",
            allow_val_change=True,
            reinit="create_new",
            settings=settings,
        )
        self.after = 0 if self._is_offline else max(0, int(self._run.starting_step) - 1)
        self._folder = Path(self._run.settings.sync_dir)

    @property
    def destination(self) -> str:
        """A folder or an address."""
        return str(self._folder) if self._is_offline else str(self._run.url)

    def add(self, points: Iterable[Point]) -> int:
        """Returns how many points there were."""
        count = 0
        for point in points:
            tokens = {} if point.tokens is None else {"tokens": point.tokens}
            self._run.log({**point.values, **tokens, "_timestamp": point.time_s}, step=point.step)
            count += 1
        return count

    def end(self, state: str | None, results: Mapping[str, Any]) -> None:
        """Nothing more comes of this attempt. In the table of runs the last and best results stand."""
        self._run.summary.update({**results, **({"state": state} if state else {})})
        self._run.finish(exit_code=0 if state in ("done", "running", None) else 1)
        for folder in self._before:  # what they have is in the new one
            if folder.resolve() != self._folder.resolve():
                shutil.rmtree(folder, ignore_errors=True)
