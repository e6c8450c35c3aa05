"""Submit runs again that have ended and are not done, with their frozen config and a few keys changed."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from conf import AUTO, Config
from conf.command_line.request import LOCAL_LAUNCHER, SLURM_LAUNCHER, Launcher
from conf.composing.check import check, to_config, to_plain, unknown_key
from conf.composing.run_identity import is_in_identity
from conf.own_parts.use import use_plugins
from conf.per_model_slurm import settle
from conf.suggestions import no_such
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.json_values import at_path, mapping
from experiment_utils.quantities import format_limit, parse_duration, parse_size
from slurm.cluster.resources import share_bytes, task_bytes
from slurm.launch.outcome import outcomes_of
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
)
from slurm.states import ENDED
from slurm.submit.batch import Submitted
from slurm.submit.frozen_code import FROZEN, MovedOn, copy_of, moved_on
from slurm.submit.in_flight import in_flight
from slurm.submit.submit_runs import check_and_plan, submit_plans
from training.attempt.plugin_copies import copies_of
from training.attempt.run_files import read_config, read_status

CHOICES = tuple(state for state in ENDED if state != "done")
_LIVE = ("queued", "running", "stalled", "blocked", "unreadable")
_NOT_HERE = {
    "plan": "--dry-run says which runs would be submitted, and submits nothing",
    "wait": "resubmit does not wait. How they go: python -m slurm watch STUDY",
    "runs_dir": "a run continues in its own folder",
    "study.name": "a run continues in its own folder",
}
"""Keys outside of an identity that have no meaning for a run that is submitted again."""


@dataclasses.dataclass(frozen=True)
class Again:
    """Options of submitting again."""

    only: Sequence[str] | None = None
    """States; None: all that are not done."""
    mem: str | None = None
    """A size, or a factor of the last one such as `x2`."""
    time: str | None = None
    """A time limit, or a factor of the last one."""
    overrides: Sequence[str] = ()
    """`KEY=VALUE` for all of them."""
    launcher: str | None = None
    """None: that of each run's last submission."""
    jobs: int | None = None
    """Runs in parallel on this machine."""
    command: str = ""
    """The command as typed."""
    code: str = FROZEN
    """FROZEN: the copy that each run was submitted with last; NOW: a copy of the checkout."""
    again: bool = False
    """Whether the runs begin again from step 0."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A run that would be submitted again."""

    folder: Path
    state: str
    reason: str | None
    last: tuple[Submission, Array] | None
    """Its last submission, and its array there."""


def find(
    study: Path, names: Sequence[str], only: Sequence[str] | None, *, again: bool = False
) -> tuple[list[Found], dict[str, str]]:
    """Find the runs of a study that have ended and are not done.

    Args:
        names: only these runs; empty: all.
        only: only runs in these states.
        again: also runs that are done, since they are to begin again.

    Returns:
        The runs, and the states of those that are left as they are: queued, blocked or running (empty if
        `only` is given).

    Raises:
        UserError: a name or state does not exist; or Slurm does not answer.
    """
    folders = {folder.name: folder for folder in run_folders(study)}
    chosen = [named(name, list(folders)) for name in names] or list(folders)
    choices = list(ENDED if again else CHOICES)
    wrong = [state for state in only or () if state not in choices]
    if wrong:
        raise UserError(*(Problem("--only", no_such("state", state, choices)) for state in wrong))
    held = in_flight(study, [name for name in chosen if _is_readable(folders[name])])
    found, left = [], {}
    for outcome in outcomes_of(study, chosen):
        name, state = outcome.folder.name, outcome.state
        if state == "done" and not again:
            continue
        if name in held or state in _LIVE:
            left[name] = state if state in _LIVE else held[name]
        elif not only or state in only:
            place = last_place(outcome.folder)
            found.append(Found(outcome.folder, state, outcome.reason, place and place[:2]))
    return found, {} if only else left


def _is_readable(folder: Path) -> bool:
    try:
        with atomic_files.reading(folder):
            places(folder)
            read_status(folder)
    except atomic_files.Unreadable:
        return False
    return True


def submit_again(study: Path, found: Sequence[Found], again: Again) -> list[Submitted]:
    """Submit runs again, in the same folders.

    Raises:
        UserError: a changed key makes another run of one of them; or the cluster refuses one.
    """
    submitted = []
    with _in_their_folder(found):
        for (launcher, copy), runs in _by_launcher(found, again).items():
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
    """Copies of the code that these runs were submitted with last, and how the checkout differs from them.

    Raises:
        UserError: a copy is gone.
    """
    runs = {copy: run.folder for run in reversed(found) if (copy := _copy_of(run)) is not None}
    return [moved_on(copy, run) for copy, run in runs.items()]


def _copy_of(run: Found) -> Path | None:
    return copy_of(run.last[0]) if run.last is not None else None


def _by_launcher(found: Sequence[Found], again: Again) -> dict[tuple[Launcher, Path | None], list[Found]]:
    """Runs by launcher and by the copy of the code that they run; None: a new copy."""
    groups: dict[tuple[Launcher, Path | None], list[Found]] = {}
    for run in found:
        if (again.launcher or _launcher_of(run)) == LOCAL:
            jobs = again.jobs or (run.last[1].parallel if run.last else None) or 1
            launcher = Launcher(LOCAL_LAUNCHER, jobs, detach=True)
        else:
            launcher = Launcher(SLURM_LAUNCHER)
        copy = _copy_of(run) if again.code == FROZEN else None
        groups.setdefault((launcher, copy), []).append(run)
    targets = {launcher.target for launcher, _ in groups}
    if again.jobs is not None and targets == {SLURM_LAUNCHER}:
        raise UserError(Problem("--jobs", "is of the local launcher; on a cluster: slurm.parallel=N"))
    of_slurm = [f"--{name}" for name in ("mem", "time") if getattr(again, name) is not None]
    if of_slurm and targets == {LOCAL_LAUNCHER}:
        what = "is asked of Slurm, and these runs are started on this machine; to send them: --launcher slurm"
        raise UserError(*(Problem(option, what) for option in of_slurm))
    return groups


def _launcher_of(run: Found) -> str:
    """Launcher of its last submission."""
    if run.last is not None:
        return SLURM if run.last[0].job is not None else run.last[0].launcher
    if (run.folder / "run.json").exists():  # it has begun in the foreground
        return LOCAL if stamp_of_variables(mapping(read_status(run.folder).get("job_ids"))) is None else SLURM
    what = f"{run.folder.name} was never submitted: where is it to run? --launcher {SLURM}, or {LOCAL}"
    raise UserError(Problem("--launcher", what))


def _config(study: Path, run: Found, again: Again, runs: int) -> Config:
    """The run's config with the changed keys.

    Args:
        runs: number of runs that are submitted again together.
    """
    frozen = settle(to_config(read_config(run.folder)))
    plain = to_plain(frozen)
    for key, value in _changes(run, frozen, again, runs).items():
        group, _, name = key.rpartition(".")
        (plain[group] if group else plain)[name] = value
    plain["ensemble"] = {}  # it continues alone
    kept = copies_of(run.folder) if again.code == FROZEN else {}
    use_plugins(frozen.plugins, around=False, copies=kept)
    config, problems = check(plain)
    if problems:
        raise UserError(*problems)
    there = Path(config.runs_dir) / (config.study.name or "default")
    if there.resolve() != study.resolve():  # the study was moved
        named_study = dataclasses.replace(config.study, name=study.name)
        config = dataclasses.replace(config, runs_dir=str(study.parent), study=named_study)
    return dataclasses.replace(config, wait=False, plan=False)


def _changes(run: Found, frozen: Config, again: Again, runs: int) -> dict[str, Any]:
    """Values of the keys that are changed for a run."""
    changes = _overrides(again.overrides) | ({"again": True} if again.again else {})
    asked, shared = _last_job(run)
    # A job's memory is for all runs in parallel in it: fewer runs than before need less.
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
    other = [key for key, value in changes.items() if is_in_identity(key) and at_path(plain, key) != value]
    if other:
        raise UserError(
            *(Problem(key, "another value makes another run; start it with experiments.py") for key in other)
        )
    return changes


def _last_job(run: Found) -> tuple[dict[str, Any], int]:
    """(options, runs in parallel) of its last job; of an array that was refused only if it had no other.

    The factor of `--mem x2` is of a job that the cluster took: a refused one has the factor already.
    """
    if run.last is None:
        return {}, 1
    for place in reversed(places(run.folder)):
        submission = read_submission(run.folder.parent, place.submission)
        array = submission.arrays[place.array]
        if array.is_sent is not False:
            of_task = array.tasks[array.task_of(place.task)]
            return array.options, len(of_task) if array.how == "pack" else min(array.slots, len(of_task))
    return run.last[1].options, 1


def _overrides(given: Sequence[str]) -> dict[str, Any]:
    from conf.composing.overrides import parse
    from conf.keys import keys

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
    """Memory in bytes for `--mem`.

    Args:
        given: a size, or a factor of the last one such as `x2`.
        configured: `slurm.mem` of the config.
        asked: --mem of the last job.

    Raises:
        UserError: it is neither; or a factor without a last size.
    """
    from conf.keys import keys
    from conf.values import convert

    with _or_a_factor("--mem", given, "8GB"):
        factor = _factor(given)
        if factor is None:
            return int(convert(keys()["slurm.mem"], parse_size(given)))
        last = parse_size(asked) if asked is not None else configured
        return round(int(last or AUTO) * factor)


def new_time(given: str, configured: str, asked: str | None) -> str:
    """Time limit for `--time`; arguments as of `new_mem`.

    Raises:
        UserError: it is neither; or a factor without a last limit.
    """
    with _or_a_factor("--time", given, "2h"):
        factor = _factor(given)
        seconds = parse_duration(given if factor is None else asked if asked is not None else configured)
        return given if factor is None else format_limit(float(seconds or AUTO) * factor)


@contextmanager
def _or_a_factor(option: str, given: str, example: str) -> Iterator[None]:
    """Raise a ValueError of the block as the error of an option; `auto` is a last value without a number."""
    try:
        yield
    except ValueError as error:
        what = f"{error}, or a factor such as x2"
        if _factor(given) is not None:
            what = f"{given} of what? It was never submitted with one: {option} {example}"
        raise UserError(Problem(option, what)) from error


def _factor(given: str) -> float | None:
    found = re.fullmatch(r"[xX](\d+(?:\.\d+)?)", given.strip())
    return float(found[1]) or None if found else None


def named(given: str, there: list[str]) -> str:
    """Name of a run, given by its name or the beginning of its identity. Raises UserError."""
    name = Path(given).name
    matching = [run for run in there if run == name or run.rpartition("-")[2].startswith(given)]
    if name in there:
        return name
    if len(matching) == 1:
        return matching[0]
    raise UserError(no_such("run", given, there) if not matching else f"{given} begins more than one run")


@contextmanager
def _in_their_folder(found: Sequence[Found]) -> Iterator[None]:
    """Work in the folder that the runs were submitted from: paths of their configs are relative to it."""
    homes = sorted({run.last[0].cwd for run in found if run.last})
    if len(homes) > 1:
        listed = ", ".join(map(shlex.quote, homes))
        raise UserError(
            f"these runs were submitted from several folders: {listed}. Name those of one of them"
        )
    with chdir(homes[0]) if homes and Path(homes[0]).is_dir() else nullcontext():
        yield
