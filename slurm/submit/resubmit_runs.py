"""Submitting again what did not end as done: the frozen config of each run, a few keys changed if asked."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conf import AUTO, Config
from conf.by_model import settle
from conf.check import check, to_config, to_plain, unknown_key
from conf.names import no_such
from conf.request import LOCAL_LAUNCHER, SLURM_LAUNCHER, Launcher
from conf.run_identity import is_in_identity
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.json_values import mapping
from experiment_utils.quantities import format_limit, parse_duration, parse_size
from slurm.cluster.resources import share_bytes, task_bytes
from slurm.records.stamps import stamp_of_variables
from slurm.records.submissions import (
    LOCAL,
    SLURM,
    Array,
    Submission,
    last_place,
    places,
    read_submission,
    run_folders,
    submissions,
)
from slurm.states import ENDED
from slurm.submit.batch import Submitted
from slurm.submit.frozen_code import FROZEN, MovedOn, copy_of, moved_on
from slurm.submit.in_flight import in_flight
from slurm.submit.outcomes import outcomes_of
from slurm.submit.submit_runs import check_and_plan, submit_plans
from training.attempt.run_files import read_config, read_status

CHOICES = tuple(state for state in ENDED if state != "done")
_LIVE = ("queued", "running", "stalled", "blocked", "unreadable")
_NOT_HERE = {
    "plan": "--dry-run says which runs would be submitted, and submits nothing",
    "wait": "resubmit does not wait. How they go: python -m slurm watch STUDY",
    "runs_dir": "a run goes on in its own folder",
    "study.name": "a run goes on in its own folder",
}
"""Keys that are no part of an identity, and that a run which is submitted again has no use for."""


@dataclasses.dataclass(frozen=True)
class Again:
    """What is to be submitted again. only: states; None: all that are not done. mem, time: `x2`, or a value.
    overrides: `KEY=VALUE` for all of them. launcher: None: of each run's last submission. command: as typed.
    code: FROZEN: the copy that each run was submitted with last; NOW: a copy of the checkout. again: whether
    the runs begin again from step 0.
    """

    only: Sequence[str] | None = None
    mem: str | None = None
    time: str | None = None
    overrides: Sequence[str] = ()
    launcher: str | None = None
    jobs: int | None = None
    command: str = ""
    code: str = FROZEN
    again: bool = False


@dataclasses.dataclass(frozen=True)
class Found:
    """A run that would be submitted again. last: its last submission, and its array there."""

    folder: Path
    state: str
    reason: str | None
    last: tuple[Submission, Array] | None


def find(
    study: Path, names: Sequence[str], only: Sequence[str] | None, *, again: bool = False
) -> tuple[list[Found], dict[str, str]]:
    """The runs of a study that have ended, and not as done; of these those of the names and states. And those
    that are left, since they are `queued`, `running` or `stalled`; where states are named, none are told.

    again: those that are done too, since they are to begin again.

    Raises:
        UserError: a name or state that there is not; or Slurm does not answer.
    """
    folders = {folder.name: folder for folder in run_folders(study)}
    chosen = [named(name, list(folders)) for name in names] or list(folders)
    choices = list(ENDED if again else CHOICES)
    wrong = [state for state in only or () if state not in choices]
    if wrong:
        raise UserError(*(Problem("--only", no_such("state", state, choices)) for state in wrong))
    closed = [name for name in chosen if _is_closed(folders[name])]
    held = in_flight(study, [name for name in chosen if name not in closed])
    found, left = [], {}
    for outcome in outcomes_of(study, chosen):
        name, state = outcome.folder.name, outcome.state
        if state == "done" and not again:
            continue
        if name in held or state in _LIVE:
            if not only:
                left[name] = state if state in _LIVE else held[name]
        elif not only or state in only:
            found.append(Found(outcome.folder, state, outcome.reason, _last(outcome.folder)))
    return found, left


def _is_closed(folder: Path) -> bool:
    """Whether its files cannot be read, so that nothing is known of it."""
    try:
        with atomic_files.reading(folder):
            places(folder)
            read_status(folder)
    except atomic_files.Unreadable:
        return True
    return False


def submit_again(study: Path, found: Sequence[Found], again: Again) -> list[Submitted]:
    """Submit them with new numbers of jobs, in the same folders.

    Raises:
        UserError: what is asked for makes another run of one of them, or is refused by the cluster.
    """
    submitted = []
    with _standing_where(found):
        for (launcher, copy), runs in _by_launcher(study, found, again).items():
            configs = [_config(study, run, again, len(runs)) for run in runs]
            then, notify = configs[-1].then, configs[-1].notify  # one end for all of them
            configs = [dataclasses.replace(config, then=then, notify=notify) for config in configs]
            plans, cluster = check_and_plan(configs, launcher, is_open=False)
            for plan, run in zip(plans, runs, strict=True):
                if plan.folder is None or plan.folder.name != run.folder.name:
                    raise UserError(
                        f"{run.folder.name}: its data or the changed keys make another run of it, which "
                        "resubmit does not start. Type the command of the sweep again"
                    )
            copies = {} if copy is None else {config.runs_dir: copy for config in configs}
            submitted += submit_plans(
                plans, cluster, launcher, again.command, copies=copies, is_frozen=copy is not None
            )
    return submitted


def frozen_code(found: Sequence[Found]) -> list[MovedOn]:
    """Copies of the code that these runs were submitted with last, and how the checkout has moved on since.

    Raises:
        UserError: a copy is gone.
    """
    runs = {copy: run.folder for run in reversed(found) if (copy := _copy_of(run)) is not None}
    return [moved_on(copy, run) for copy, run in runs.items()]


def _copy_of(run: Found) -> Path | None:
    return copy_of(run.last[0]) if run.last is not None else None


def _by_launcher(
    study: Path, found: Sequence[Found], again: Again
) -> dict[tuple[Launcher, Path | None], list[Found]]:
    """Runs by how they are started and by the copy of the code that they run; None: a new copy."""
    groups: dict[tuple[Launcher, Path | None], list[Found]] = {}
    is_on_slurm = any(submission.launcher == SLURM for submission in submissions(study))
    for run in found:
        kind = again.launcher or _launcher_of(run, is_on_slurm)
        if kind == LOCAL:
            jobs = again.jobs or (run.last[1].parallel if run.last else None) or 1
            launcher = Launcher(LOCAL_LAUNCHER, jobs, detach=True)
        else:
            launcher = Launcher(SLURM_LAUNCHER)
        copy = _copy_of(run) if again.code == FROZEN else None
        groups.setdefault((launcher, copy), []).append(run)
    if again.jobs is not None and all(launcher.target == SLURM_LAUNCHER for launcher, _ in groups):
        raise UserError(Problem("--jobs", "is of the local launcher; on a cluster: slurm.parallel=N"))
    of_slurm = [f"--{name}" for name in ("mem", "time") if getattr(again, name) is not None]
    if of_slurm and all(launcher.target == LOCAL_LAUNCHER for launcher, _ in groups):
        what = "is asked of Slurm, and these runs are started on this machine; to send them: --launcher slurm"
        raise UserError(*(Problem(option, what) for option in of_slurm))
    return groups


def _launcher_of(run: Found, is_on_slurm: bool) -> str:
    """Of one that no submission has taken: only a queue without room leaves such a one behind, but for a
    submitter that died at that moment. So it is meant for a cluster, whose login node is no place for it,
    also where the study's newest run was tried in front of somebody. is_on_slurm: others of the study are.
    """
    if run.last is not None:
        return SLURM if run.last[0].job is not None else run.last[0].launcher
    if (run.folder / "run.json").exists():  # it has begun in the foreground
        return LOCAL if stamp_of_variables(mapping(read_status(run.folder).get("job_ids"))) is None else SLURM
    if is_on_slurm:
        return SLURM
    what = (
        f"{run.folder.name} was never submitted, so nothing tells where it is to run: say --launcher "
        "slurm, or local; or type the command of the sweep again"
    )
    raise UserError(Problem("--launcher", what))


def _config(study: Path, run: Found, again: Again, runs: int) -> Config:
    """runs: how many are submitted again with it."""
    plain = read_config(run.folder)
    frozen = settle(to_config(plain))
    plain = to_plain(frozen)
    for key, value in _changes(run, frozen, again, runs).items():
        group, _, name = key.rpartition(".")
        (plain[group] if group else plain)[name] = value
    plain["ensemble"] = {}  # it goes on by itself
    config, problems = check(plain)
    if problems:
        raise UserError(*problems)
    there = Path(config.runs_dir) / (config.study.name or "default")
    if there.resolve() != study.resolve():  # the study was moved, or one stands elsewhere
        config = dataclasses.replace(
            config,
            runs_dir=str(study.parent),
            study=dataclasses.replace(config.study, name=study.name),
        )
    return dataclasses.replace(config, wait=False, plan=False)


def _changes(run: Found, frozen: Config, again: Again, runs: int) -> dict[str, Any]:
    changes = _overrides(again.overrides) | ({"again": True} if again.again else {})
    asked, shared = _last_job(run)
    # A job's memory is for all that share it: one of eight that is left would ask for that of eight,
    # which its node may not have.
    before = max(frozen.slurm.pack, shared)
    left = max(1, min(before, runs))
    are_fewer = left < before and "slurm.pack" not in changes
    if are_fewer:
        changes["slurm.pack"] = left
    if again.mem is not None:
        mem = new_mem(again.mem, frozen.slurm.mem, asked.get("mem"))
        of_each = are_fewer and _factor(again.mem) is not None
        changes["slurm.mem"] = task_bytes(share_bytes(mem, before), left) if of_each else mem
    if again.time is not None:
        changes["slurm.time"] = new_time(again.time, frozen.slurm.time, asked.get("time"))
    plain = to_plain(frozen)
    other = [key for key, value in changes.items() if is_in_identity(key) and _at(plain, key) != value]
    if other:
        raise UserError(
            *(Problem(key, "another value makes another run; start it with experiments.py") for key in other)
        )
    return changes


def _last_job(run: Found) -> tuple[dict[str, Any], int]:
    """(options, runs that shared it) of the last job that it had; else of what was to be submitted last.

    What was not taken has its factor in it already, and the same command would double it each time.
    """
    if run.last is None:
        return {}, 1
    for place in reversed(places(run.folder)):
        submission = read_submission(run.folder.parent, place.submission)
        array = submission.arrays[place.array]
        if array.is_sent is not False:
            return array.options, len(array.tasks[place.task]) if array.how == "pack" else array.slots
    return run.last[1].options, 1


def _overrides(given: Sequence[str]) -> dict[str, Any]:
    from conf.keys import keys
    from conf.overrides import parse

    changes: dict[str, Any] = {}
    problems = []
    for argument in given:
        parsed = parse(argument, lambda group: [])
        if isinstance(parsed, Problem):
            problems.append(parsed)
        elif parsed.key in _NOT_HERE:
            problems.append(Problem(parsed.key, _NOT_HERE[parsed.key]))
        elif parsed.key not in keys():
            problems.append(unknown_key(parsed.key))
        elif len(parsed.values) != 1:
            problems.append(Problem(parsed.key, "several values; a run has one, such as slurm.mem=8GB"))
        else:
            changes[parsed.key] = parsed.values[0].value
    if problems:
        raise UserError(*problems)
    return changes


def new_mem(given: str, configured: int | str | None, asked: str | None) -> int:
    """Bytes. given: `x2`, or a size. asked: sbatch --mem of the last time.

    Raises:
        UserError: it is neither; or a factor of a size that nobody knows.
    """
    from conf.keys import keys
    from conf.values import convert

    factor = _factor(given)
    try:
        if factor is None:
            return int(convert(keys()["slurm.mem"], parse_size(given)))
        last = parse_size(asked) if asked is not None else configured
    except ValueError as error:
        raise UserError(Problem("--mem", f"{error}, or a factor such as x2")) from error
    if last == AUTO or not last:
        raise UserError(Problem("--mem", f"{given} of what? It was never submitted with a size: --mem 8GB"))
    return round(int(last) * factor)


def new_time(given: str, configured: str, asked: str | None) -> str:
    """A time limit. given: `x2`, or one; asked: sbatch --time of the last time.

    Raises:
        UserError: it is neither; or a factor of a limit that nobody knows.
    """
    factor = _factor(given)
    last = asked if asked is not None else configured
    try:
        if factor is None:
            parse_duration(given)
            return given
        seconds = None if last == AUTO else parse_duration(last)
    except ValueError as error:
        raise UserError(Problem("--time", f"{error}, or a factor such as x2")) from error
    if seconds is None:
        raise UserError(Problem("--time", f"{given} of what? It was never submitted with one: --time 2h"))
    return format_limit(seconds * factor)


def _factor(given: str) -> float | None:
    found = re.fullmatch(r"[xX](\d+(?:\.\d+)?)", given.strip())
    return float(found[1]) or None if found else None


def _at(plain: Mapping[str, Any], key: str) -> Any:
    group, _, name = key.rpartition(".")
    return (plain[group] if group else plain)[name]


def named(given: str, there: list[str]) -> str:
    """The name of a run, of which one may give the beginning of its identity. Raises UserError."""
    name = Path(given).name
    matching = [run for run in there if run == name or run.rpartition("-")[2].startswith(given)]
    if name in there:
        return name
    if len(matching) == 1:
        return matching[0]
    raise UserError(no_such("run", given, there) if not matching else f"{given} begins more than one run")


def _last(folder: Path) -> tuple[Submission, Array] | None:
    place = last_place(folder)
    return None if place is None else place[:2]


@contextmanager
def _standing_where(found: Sequence[Found]) -> Iterator[None]:
    """In the folder that paths of the configs are relative to: where the sweep was submitted from."""
    homes = {run.last[0].cwd for run in found if run.last}
    if len(homes) > 1:
        listed = ", ".join(sorted(shlex.quote(home) for home in homes))
        raise UserError(
            f"these runs were submitted from several folders: {listed}. Name those of one of them"
        )
    here = Path.cwd()
    home = Path(homes.pop()) if homes else here
    if home.is_dir():
        os.chdir(home)
    try:
        yield
    finally:
        os.chdir(here)
