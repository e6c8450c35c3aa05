"""One attempt of several runs as one program: lock their folders, begin, train, and end each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_loading.interruptible_wait import checked_while_waiting
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from memory import black_box, record_to
from memory.attribute.attribution import largest
from memory.record.earlier_attempts import keep_earlier
from training.attempt.begin import FILES_OF_ATTEMPT, check_code, code_allowed, finish_beginning_again
from training.attempt.run_files import Status, next_attempt, read_run, read_status, run_lock
from training.checkpoint.checkpoints import Checkpoints
from training.distributed.place import place_of
from training.ensemble.allocator import keep_freed_memory
from training.ensemble.ensemble_loop import EnsembleLoop
from training.ensemble.member_log import ON_TERMINAL, about, log_to_each
from training.ensemble.size_probe import settle_together
from training.interrupt import Interrupt, Interrupted
from training.report.external_logger import Logger
from training.run.company import Company, Group, groups
from training.run.early_stopping import says_time_is_over
from training.run.exit_reason import ending_of

if TYPE_CHECKING:
    from training.run.prepared_run import Started

log = logging.getLogger("training")

Begin = Callable[..., "Started"]
"""`core.begin`."""


def run_members(
    folders: Sequence[Path], begin: Begin, alone: Callable[[Path], int], *, terminal: bool
) -> int:
    """Run these folders under their locks; returns the exit code and leaves each outcome in its status.json.

    The exit code is that of the first run that did not end as done.

    Args:
        alone: trains one run alone, if several at a time are not faster.

    Raises:
        LockHeld: another process runs in one of the folders; nothing is touched.
        UserError: files of the folders cannot be used.
    """
    if not place_of(folders[0].name).is_alone:
        raise UserError("an ensemble is one process on one device: start it on one rank")
    waiting = [folder for folder in folders if not _is_over(folder)]
    names = tuple(folder.name for folder in folders)
    if not waiting:
        return 0
    with ExitStack() as locks:
        for folder in waiting:
            locks.enter_context(run_lock(folder))
            finish_beginning_again(folder)
            check_code(folder, code_allowed(folder), quiet=True)
        attempt = _Attempt({folder.name: folder for folder in waiting}, names, begin)
        with log_to_each(waiting, terminal=terminal):
            code = attempt.run()
    if attempt.together > 1:
        return code
    for folder in waiting:
        code = alone(folder) or code
        if code in (130, 2) or _was_stopped(folder):
            return code
    return code


def _is_over(folder: Path) -> bool:
    """Done, with its results."""
    status = read_status(folder)
    return status.get("state") == "done" and bool(read_run(folder).get("results"))


def _was_stopped(folder: Path) -> bool:
    """Whether a signal ended the run, and so the runs after it too; training.max_time ends one run alone."""
    status = read_status(folder)
    is_stopped = status.get("state") in ("cancelled", "timeout")
    return is_stopped and not says_time_is_over(status.get("reason"))


class _Attempt:
    """folders: unfinished runs, by name. names: all runs of the ensemble. together: runs at a time."""

    def __init__(self, folders: dict[str, Path], names: tuple[str, ...], begin: Begin) -> None:
        self.together = 1
        self._folders, self._names, self._begin = folders, names, begin
        self._statuses: dict[str, Status] = {}
        self._codes: dict[str, int] = {}

    def run(self) -> int:
        first = next(iter(self._folders.values()))
        with Interrupt() as interrupt, checked_while_waiting(interrupt.check):
            try:
                self.together = settle_together(list(self._folders.values()), len(self._names))
            except UserError as error:
                self._open_statuses()
                self._fail(list(self._folders), error)
                return 2
            if self.together == 1:
                return 0
            keep_freed_memory()
            self._open_statuses()
            attempt = self._statuses[first.name].attempt
            with (
                black_box.installed(first, attempt=attempt, largest=largest),
                record_to(first, attempt=attempt, echo=logging.getLogger("memory").info, details=True),
            ):
                self._run_groups(interrupt)
        return next((code for code in self._codes.values() if code), 0)

    def _open_statuses(self) -> None:
        for name, folder in self._folders.items():
            before = read_status(folder)
            with about(name):
                if before.get("state") == "running":
                    log.warning(
                        "attempt %s ended without an outcome in stage %s: killed, or the machine went down",
                        before.get("attempt"),
                        before.get("stage"),
                    )
                check_code(folder, code_allowed(folder))
                attempt = next_attempt(folder)
                keep_earlier(folder, attempt, FILES_OF_ATTEMPT)
                self._statuses[name] = Status(folder, attempt)

    def _run_groups(self, interrupt: Interrupt) -> None:
        steps = {}
        for name, folder in self._folders.items():
            with about(name):
                try:
                    steps[name] = Checkpoints(folder / "checkpoints", 1).whole_steps()
                except atomic_files.Unreadable as error:
                    self._fail([name], error)
        runs = {name: read_run(self._folders[name]) for name in steps}
        by_themselves = [name for name, run in runs.items() if not run.get("ensemble")]
        begins = {name: _begins_at(run) for name, run in runs.items()}
        found = groups(steps, self.together, by_themselves, begins)
        for group in found:
            waiting = [name for later in found[found.index(group) :] for name in later.members]
            logger = Logger([self._folders[name] for name in group.members])
            try:
                if len(found) > 1:
                    log.info("%s of %s now: %s", len(group.members), len(waiting), ", ".join(group.members))
                self._run_group(group, interrupt, logger)
            except (Interrupted, KeyboardInterrupt) as error:
                self._fail([name for name in waiting if name not in self._codes], error)
                return
            except BaseException as error:
                self._fail([name for name in group.members if name not in self._codes], error)
            finally:
                logger.close(is_hurried=interrupt.requested is not None)

    def _run_group(self, group: Group, interrupt: Interrupt, logger: Logger) -> None:
        company = Company(self._names, self.together, group.step)
        started = []
        for name in group.members:
            with about(name):
                try:
                    Checkpoints(self._folders[name] / "checkpoints", 1).drop_after(group.step)
                    started.append(
                        self._begin(self._folders[name], self._statuses[name], interrupt, None, company)
                    )
                except (Interrupted, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._fail([name], error)
        if started:
            logger.start(started[0].run.config.logging)
        # Branches that decay from other steps begin at other steps, known only once they have begun.
        for step in sorted({member.run.step for member in started}):
            same = [member for member in started if member.run.step == step]
            log.info("%s together, from step %s", counted(len(same), "run"), f"{step:,}")
            EnsembleLoop(same, self._ended, logger).run()

    def _ended(self, member: Started, error: BaseException | None) -> None:
        name = member.run.folder.name
        if error is None:
            self._codes[name] = 0
            with about(ON_TERMINAL):
                log.info("%s is done: val loss %s", name, _loss(member.run.val_loss))
        else:
            self._fail([name], error)

    def _fail(self, names: Sequence[str], error: BaseException) -> None:
        """Record how runs ended: one reason for all, in the log of each."""
        reason = ""
        for name in names:
            with about(name):
                state, code, reason = ending_of(error, self._folders[name])
                self._codes[name] = code
                with suppress(OSError):
                    self._statuses[name].update(state=state, reason=reason)
        if names:
            with about(ON_TERMINAL):
                log.error("%s: %s", names[0] if len(names) == 1 else counted(len(names), "run"), reason)


def _begins_at(run: Mapping[str, Any]) -> int:
    """Steps of another run that a branch continues, from its run.json; 0 if it has not begun."""
    restored = run.get("restored") or {}
    return int(restored["step"]) if restored.get("what") == "run" else 0


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
