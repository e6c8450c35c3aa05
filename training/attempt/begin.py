"""Begin an attempt of a run: make its folder, resume with the same code, or begin again from step 0.

Beginning again moves the files of the run to RUN/attempts/N/, N being its last attempt. again.json lists what
is to be moved and exists until all is done, so that the next start finishes a move that a kill interrupted.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conf import Config
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.run_folder import ATTEMPTS
from training.attempt.code_record import changes_since, code_of_attempt
from training.attempt.code_version import ROOT, Change, code_version
from training.attempt.plugin_copies import copies_of, keep_plugins, plugin_changes
from training.attempt.run_files import read_config, read_run, read_status, run_folder, run_lock

log = logging.getLogger("training")

PENDING = "again.json"
_STAYS = re.compile(
    r"\..*|attempts|again\.json|code|config\.yaml|jobs\.json|plugins\.json|run\.json|run\.lock|starts\.json|rank\d+"
)
"""Names of files that all attempts share, and of folders of ranks."""
_MADE_AGAIN = ("auto", "ensemble", "implementation", "results")
"""Keys of run.json with outcomes of earlier attempts."""
FILES_OF_ATTEMPT = ("outcome.json", "memory.ring", "memory.jsonl", "memory.attribution.json", "logger.txt")
"""Files of one attempt alone; they move to its folder when the next one begins (memory/record)."""
_MOST_FILES = 10


class CodeChanged(UserError):
    """An unfinished run would resume with changed code. changes: since its last attempt."""

    def __init__(self, folder: Path, attempt: int, changes: list[Change]) -> None:
        self.folder, self.changes = folder, changes
        super().__init__(
            f"{folder} is not finished, and the code has changed since attempt {attempt}: "
            f"{describe_changes(changes)}. To resume it with the changed code, add code=any to the command; "
            f"to begin again from step 0, add again=true ({ATTEMPTS}/{attempt}/ then keeps what it has)"
        )


def describe_changes(changes: Sequence[Change]) -> str:
    """`models/layers/blocks.py (+3 -1), training/step/train_step.py (+1 -1)`."""
    parts = [str(change) for change in changes[:_MOST_FILES]]
    if len(changes) > _MOST_FILES:
        parts.append(f"{len(changes) - _MOST_FILES} more")
    return ", ".join(parts) or "which files is not known"


def named_plugins(config: Config) -> dict[str, Path]:
    """Plugin to the file that its name in the configuration means now."""
    return {plugin: Path(plugin) for plugin in config.plugins}


def create_run(config: Config, run_identity: str, *, code: Path = ROOT, keeps_plugins: bool = False) -> Path:
    """Make the run's folder and write the resolved config into it. Safe to call again.

    A finished run is left as it is; with `again=true` its files are moved and it begins again. Keys outside
    the identity can have changed since the last attempt: the new ones are written.

    Args:
        code: checkout, or copy of it, that the run will be computed with.
        keeps_plugins: compute with the copies of plugins that the run has, not with the files of now.

    Raises:
        LockHeld: a process is running in this folder.
        CodeChanged: the run is unfinished, and its last attempt had other code.
        UserError: the folder cannot be written.
    """
    from conf.composing.check import to_yaml

    folder = run_folder(config, run_identity)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if read_status(folder).get("state") == "done" and not config.again and not is_to_be_moved(folder):
            return folder
        with run_lock(folder):
            finish_beginning_again(folder)
            if config.again:
                begin_again(folder)
                config = replace(config, again=False)  # of this command alone, not of each start of a job
            plugins = None if keeps_plugins else named_plugins(config)
            check_code(folder, config.code, code, quiet=True, plugins=plugins)
            if not (keeps_plugins and copies_of(folder)):
                keep_plugins(folder, config.plugins)
            atomic_files.write_text(folder / "config.yaml", to_yaml(config))
    except OSError as error:
        raise UserError(
            Problem(
                "runs_dir", f"cannot write {folder}: {error.strerror}. Choose another place with runs_dir="
            )
        ) from error
    return folder


def check_code(
    folder: Path,
    allowed: str,
    code: Path = ROOT,
    *,
    quiet: bool = False,
    plugins: Mapping[str, Path] | None = None,
) -> None:
    """Check that a run resumes with the code of its last attempt.

    A run that is done, has no checkpoint or begins again resumes nothing.

    Args:
        allowed: `code` of its config: same, or any.
        code: checkout, or copy of it, that it will be computed with.
        quiet: log nothing.
        plugins: plugin of the user's to the file that it will be computed with; None: to its copy.

    Raises:
        CodeChanged: the code differs.
        Unreadable: its checkpoints cannot be listed.
    """
    try:
        run, state = read_run(folder), read_status(folder).get("state")
    except UserError:  # the run itself says what is wrong with it
        return
    if state == "done" or is_to_be_moved(folder):
        return
    attempts = run.get("attempts") or []
    if not attempts or run.get("again") or not _has_checkpoint(folder):
        return
    number, before = _number(attempts), code_of_attempt(folder, attempts[-1])
    if before is None:
        if not quiet:
            log.info("attempt %s was made before code was recorded: resuming with the code of now", number)
        return
    of_plugins = plugin_changes(folder, before.plugins, copies_of(folder) if plugins is None else plugins)
    if before.version.hash == code_version(code).hash and not of_plugins:
        return
    if allowed == "any" and quiet:
        return
    changes = [*of_plugins, *changes_since(folder, before, code)]
    if allowed != "any":
        raise CodeChanged(folder, number, changes)
    log.warning(
        "resuming with code that has changed since attempt %s (code=any): %s",
        number,
        describe_changes(changes),
    )


def _has_checkpoint(folder: Path) -> bool:
    with atomic_files.reading(folder / "checkpoints"):
        return any((folder / "checkpoints").glob("step-*"))


def code_allowed(folder: Path) -> str:
    """`code` of a run's config; `same` if the config is unreadable, which its next reader reports."""
    try:
        return str(read_config(folder).get("code", "same"))
    except UserError:
        return "same"


def begin_again(folder: Path) -> None:
    """Move the files of the run to attempts/N/, so that the next attempt begins at step 0.

    The caller holds the lock of the run. Nothing is moved if no attempt was recorded since the last time.
    """
    run = read_run(folder)
    names = sorted(name for name in os.listdir(folder) if not _STAYS.fullmatch(name))
    if not run.get("attempts") or run.get("again") or not names:
        return
    names.sort(key=lambda name: name != "status.json")  # else it would be done without results
    atomic_files.write_json(
        folder / PENDING, {"version": 1, "attempt": _number(run["attempts"]), "names": names}
    )
    finish_beginning_again(folder)


def is_to_be_moved(folder: Path) -> bool:
    """Whether a kill interrupted `begin_again`."""
    with atomic_files.reading(folder / PENDING):
        return (folder / PENDING).exists()


def finish_beginning_again(folder: Path) -> None:
    """Finish a `begin_again` that a kill interrupted. The caller holds the lock of the run."""
    pending = atomic_files.read_object(folder / PENDING)
    if pending is None:
        return
    place = folder / ATTEMPTS / str(int(pending["attempt"]))
    place.mkdir(parents=True, exist_ok=True)
    run = read_run(folder)
    if not run.get("again"):
        atomic_files.write_json(place / "run.json", run)
    for name in pending["names"]:
        atomic_files.point(f"again:{name}")
        if os.path.lexists(folder / name) and not os.path.lexists(place / name):
            os.rename(folder / name, place / name)
    atomic_files.point("again:moved")
    atomic_files.fsync_folder(place)
    kept = {key: value for key, value in run.items() if key not in _MADE_AGAIN}
    atomic_files.write_json(folder / "run.json", {**kept, "again": True})
    atomic_files.point("again:run.json")
    (folder / PENDING).unlink()
    atomic_files.fsync_folder(folder)
    log.info("%s begins again; what it had is in %s", folder, place)


def _number(attempts: list[Any]) -> int:
    last = attempts[-1].get("attempt") if isinstance(attempts[-1], dict) else None
    return last if isinstance(last, int) else len(attempts)
