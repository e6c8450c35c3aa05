"""What a command line asks for: its runs, checked whole before the first one starts."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from conf import parts_table
from conf.between_keys.ensembles import said_twice
from conf.between_keys.rules import RULES, Rule
from conf.command_line.settings import Settings, option_name, read_settings, without_effect_in
from conf.composing.check import check
from conf.composing.compose import Composer, Composition
from conf.composing.defaults_errors import shown_path
from conf.composing.interpolation import resolve
from conf.composing.overrides import Setting, Value, argument_of, parse
from conf.keys import groups, keys
from conf.own_parts.use import use_plugins
from conf.per_model_slurm import is_mapping, merged, unknown_sizes, without
from conf.schema import Config
from experiment_utils.errors import Problem, UserError

MOST_RUNS = 100_000
HALVING_SWEEPER = "hydra_plugins.highwater.HalvingSweeper"
ENUMERATING_SWEEPERS = (
    "hydra_plugins.highwater.LocalSweeper",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
)
"""Sweepers that run every combination; others choose as they go."""
SLURM_LAUNCHER = "hydra_plugins.highwater.SlurmLauncher"
LOCAL_LAUNCHER = "hydra_plugins.highwater.LocalLauncher"


@dataclass(frozen=True)
class Launcher:
    """What starts the runs. target: its class. jobs, detach: of the local one: side by side, in the
    background."""

    target: str = LOCAL_LAUNCHER
    jobs: int = 1
    detach: bool = False

    @property
    def submits(self) -> bool:
        """Whether the runs outlive the command that asks for them."""
        return self.target == SLURM_LAUNCHER or (self.target == LOCAL_LAUNCHER and self.detach)


@dataclass(frozen=True)
class Run:
    """One run. overrides: what it was given, as Hydra's grammar reads it; enough to compose it again."""

    overrides: tuple[str, ...]
    config: Config


@dataclass(frozen=True)
class Request:
    """runs: in the order of Hydra's own sweeper. arguments: the whole command line as Hydra's grammar
    reads it. is_open: the sweeper chooses the runs as it goes; `runs` are then samples that were checked.
    launcher: what is to start them, which for one run alone is asked only whether it submits. settings: by
    key, all that was asked for; sweeper: what configures the sweeper.
    """

    runs: list[Run]
    multirun: bool
    arguments: list[str]
    is_open: bool
    launcher: Launcher = Launcher()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    sweeper: Mapping[str, Any] = field(default_factory=dict)

    @property
    def halves(self) -> bool:
        """Whether it is a search of `hydra/sweeper=halving`."""
        return self.multirun and self.sweeper.get("_target_") == HALVING_SWEEPER


@dataclass(frozen=True)
class _Sweep:
    """settings: what a study or the sweeper's params add. is_open, launcher, sweeper: as in Request."""

    settings: Settings
    is_open: bool
    multirun: bool
    launcher: Launcher
    sweeper: Mapping[str, Any]


def read_request(
    arguments: list[str],
    composer: Composer,
    *,
    multirun: bool,
    rules: Iterable[Rule] = RULES,
    command: str = "python experiments.py -m ...",
) -> Request:
    """Compose and check every run that the arguments ask for.

    command: what starts them as a sweep, for the message when they are one and `multirun` is false.

    Raises:
        UserError: everything that is wrong, in one list, each problem once and with the runs it is in.
    """
    use_plugins_of(arguments, composer)
    given = read_settings(with_runs_dir(arguments), composer, split=multirun)
    problems = list(given.problems)
    try:
        sweep = _read_sweep(given, composer, multirun, problems)
    except UserError as error:
        raise UserError(*problems, *error.problems) from error
    of_study = {key: s for key, s in sweep.settings.by_key.items() if key not in given.by_key}
    settings = {**sweep.settings.by_key, **given.by_key}
    count = math.prod(len(setting.values) for setting in settings.values())
    if not sweep.is_open and count > MOST_RUNS:
        raise UserError(*problems, Problem("", f"a sweep of more than {MOST_RUNS:,} runs; give fewer values"))
    if count > 1 and not sweep.multirun:
        problems += _needs_multirun(command, settings, of_study, count)
    problems += said_twice(settings)
    combined = _one_at_a_time(settings) if sweep.is_open else _every_combination(settings)
    assignments = list(combined)
    bad = {problem.where for problem in problems}
    runs, found = _check_all(assignments, composer, rules, bad)
    problems += _told_once(found, assignments, settings, of_study)
    problems += unknown_sizes((run.config for run in runs), composer.options("model"))
    if problems:
        raise UserError(*problems)
    of_hydra = [setting.argument for setting in given.of_hydra]
    ours = [setting.argument for setting in given.by_key.values()]
    return Request(
        runs, sweep.multirun, [*of_hydra, *ours], sweep.is_open, sweep.launcher, settings, sweep.sweeper
    )


def with_runs_dir(arguments: Iterable[str]) -> list[str]:
    """With HIGHWATER_RUNS_DIR as `runs_dir` where none is typed: as all commands find runs afterwards."""
    given, there = list(arguments), os.environ.get("HIGHWATER_RUNS_DIR")
    if not there or any(one.lstrip("+").partition("=")[0] == "runs_dir" for one in given):
        return given
    escaped = there.replace("\\", "\\\\").replace("'", "\\'")
    return [f"runs_dir='{escaped}'", *given]


def read_run(overrides: Iterable[str], composer: Composer, rules: Iterable[Rule] = RULES) -> Config:
    """The configuration of one run, as a sweeper asks for it. Raises UserError."""
    overrides = list(overrides)
    use_plugins_of(overrides, composer)
    given = read_settings(with_runs_dir(overrides), composer, split=False)
    assignment = {key: setting.values[0] for key, setting in given.by_key.items()}
    config, problems, _ = _check_one(
        assignment, composer, tuple(rules), {problem.where for problem in given.problems}
    )
    if given.problems or problems:
        raise UserError(*given.problems, *problems)
    return config


def use_plugins_of(arguments: Iterable[str], composer: Composer | None = None) -> None:
    """Read the plugins that a command line and its study name, and those of the environment.

    Args:
        composer: gets an option for each part: `optimizer=NAME`. None: for commands that compose nothing.

    Raises:
        UserError: a plugin cannot be used.
    """
    typed: list[str] = []
    for argument in arguments:
        name, _, value = argument.lstrip("+").partition("=")
        if name == "plugins":
            typed += _plugins_typed(argument)
        elif name == "study" and composer is not None and composer.has_option("study", value):
            typed += _plugins_listed(composer.top_value("study", value, "plugins"))
    use_plugins(typed, only=True)
    if composer is not None:
        composer.add_parts(parts_table.parts())


def _plugins_typed(argument: str) -> list[str]:
    setting = parse(argument, lambda group: [])
    if isinstance(setting, Problem):
        raise UserError(setting)
    if setting.is_sweep or len(setting.values) != 1:
        what = "cannot be swept: name all files, and sweep over what they register"
        raise UserError(Problem("plugins", what, "plugins-swept"))
    return _plugins_listed(setting.values[0].value)


def _plugins_listed(value: Any) -> list[str]:
    if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value or []
    what = f"expected a list of files, folders or modules: plugins=[my_parts.py]. Got {value!r}"
    raise UserError(Problem("plugins", what, "plugins-no-list"))


def _read_sweep(given: Settings, composer: Composer, multirun: bool, problems: list[Problem]) -> _Sweep:
    """What the study, or the command line through Hydra's sweeper, sweeps over."""
    choices = {k: option_name(s.values[0]) for k, s in given.by_key.items() if k not in keys()}
    is_enumerated, launcher, sweeper = True, Launcher(), dict[str, Any]()
    if multirun or given.of_hydra or composer.compose(choices).launcher != "local":
        node, wrong = composer.hydra_part(choices, [setting.argument for setting in given.of_hydra])
        problems += wrong
        sweeper = dict(_plugin(node.hydra, "sweeper", problems))
        params = sweeper.get("params") or {}
        if not isinstance(params, Mapping):
            problems.append(Problem("hydra.sweeper.params", f"expected keys and their values, got {params}"))
            params = {}
        is_enumerated = sweeper.get("_target_") in ENUMERATING_SWEEPERS
        multirun = multirun or str(node.hydra.get("mode")).endswith("MULTIRUN")
        launcher = _launcher(_plugin(node.hydra, "launcher", problems), problems)
    else:
        params = composer.compose(choices).sweep
    settings = read_settings([f"{key}={value}" for key, value in params.items()], composer, split=True)
    problems += settings.problems
    intervals = [s for s in (*settings.by_key.values(), *given.by_key.values()) if s.is_interval]
    if is_enumerated:
        problems += [
            Problem(
                setting.key,
                "interval() is for a sweeper that chooses values, such as hydra/sweeper=halving; name the "
                f"values: {setting.key}=1e-3,3e-3 or range(...)",
            )
            for setting in intervals
        ]
    return _Sweep(settings, not is_enumerated, multirun, launcher, sweeper)


def _plugin(node: Mapping[str, Any], name: str, problems: list[Problem]) -> Mapping[str, Any]:
    """What configures Hydra's launcher or sweeper; empty where it is no configuration of one."""
    from omegaconf import OmegaConf

    missing = OmegaConf.is_missing(node, name)
    found = None if missing else node.get(name)
    if isinstance(found, Mapping) and found.get("_target_"):
        return found
    of_it = "none" if missing else "null" if found is None else found
    options = {"launcher": "local, slurm", "sweeper": "local, halving, basic, or a plugin's, such as optuna"}[
        name
    ]
    problems.append(
        Problem(f"hydra.{name}", f"expected what hydra/{name}=NAME brings (choices: {options}), got {of_it}")
    )
    return {}


def _launcher(node: Mapping[str, Any], problems: list[Problem]) -> Launcher:
    jobs, detach = node.get("jobs", 1), node.get("detach", False)
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        problems.append(Problem("hydra.launcher.jobs", f"expected a whole number at least 1, got {jobs}"))
    if not isinstance(detach, bool):
        problems.append(Problem("hydra.launcher.detach", f"expected true or false, got {detach}"))
    return Launcher(str(node.get("_target_")), jobs, detach)


def _needs_multirun(
    command: str, settings: Mapping[str, Setting], of_study: Mapping[str, Setting], count: int
) -> list[Problem]:
    """A sweep without -m: the command to type, and how a text with commas is quoted."""
    swept = [setting for setting in settings.values() if len(setting.values) > 1]
    if any(setting.key in of_study for setting in swept):
        study = settings.get("study")
        name = option_name(study.values[0]) if study else "hydra.sweeper.params"
        return [Problem("study", f"{name} is a sweep of {count} runs; start it with: {command}")]
    problems = []
    for setting in swept:
        text = setting.argument.partition("=")[2]
        what = f"`{text}` is a sweep of {len(setting.values)} values; start it with: {command}"
        known = keys().get(setting.key)
        if known is not None and known.is_text:
            quoted = shlex.quote(f'{setting.key}="{text}"')
            what = f"`{text}` is a sweep; for one text with commas: {quoted}"
        problems.append(Problem(setting.key, what))
    return problems


def _every_combination(settings: Mapping[str, Setting]) -> Iterator[dict[str, Value]]:
    """In the order of Hydra's BasicSweeper: the last key varies fastest."""
    for values in product(*(setting.values for setting in settings.values())):
        yield dict(zip(settings, values, strict=True))


def _one_at_a_time(settings: Mapping[str, Setting]) -> Iterator[dict[str, Value]]:
    """Every value of every key once, the others at their first."""
    first = {key: setting.values[0] for key, setting in settings.items()}
    yield first
    for key, setting in settings.items():
        for value in setting.values[1:]:
            yield {**first, key: value}


def _check_all(
    assignments: list[dict[str, Value]], composer: Composer, rules: Iterable[Rule], bad: set[str]
) -> tuple[list[Run], dict[Problem, tuple[list[int], Composition | None]]]:
    """The runs, and each problem with the numbers of the runs it is in."""
    rules = tuple(rules)
    runs: list[Run] = []
    found: dict[Problem, tuple[list[int], Composition | None]] = {}
    for number, assignment in enumerate(assignments):
        config, problems, composition = _check_one(assignment, composer, rules, bad)
        for problem in problems:
            found.setdefault(problem, ([], composition))[0].append(number)
        runs.append(Run(tuple(arguments_of(assignment)), config))
    return runs, found


def arguments_of(assignment: Mapping[str, Value]) -> list[str]:
    """One run, as a launcher of Hydra is told of it."""
    signs = {key: "" if key in keys() or key in groups() else "+" for key in assignment}
    return [argument_of(f"{signs[key]}{key}", value.text) for key, value in assignment.items()]


def _check_one(
    assignment: Mapping[str, Value], composer: Composer, rules: tuple[Rule, ...], bad: set[str]
) -> tuple[Config, list[Problem], Composition | None]:
    choices = {key: option_name(value) for key, value in assignment.items() if key not in keys()}
    try:
        composition = composer.compose(choices)
    except UserError as error:
        return Config(), error.problems, None
    of_hydra = [
        problem
        for _, package, content in composition.files
        if not package
        for problem in without_effect_in(content)
    ]
    plain = {name: dict(part) if isinstance(part, dict) else part for name, part in composition.plain.items()}
    _yield_to_typed(plain, assignment)
    for path, value in assignment.items():
        if path in keys():
            *groups_above, name = path.split(".")
            section = _section(plain, groups_above)
            if isinstance(section, dict):
                is_merged = is_mapping(keys()[path])
                section[name] = merged(section.get(name), value.value) if is_merged else value.value
    resolved, unresolved = resolve(plain)
    config, problems = check(resolved, rules, bad | {problem.where for problem in unresolved})
    return config, of_hydra + unresolved + problems, composition


def _section(plain: dict[str, Any], path: Iterable[str]) -> Any:
    """The section at this path, made where it is missing, in copies of those above it."""
    section: Any = plain
    for name in path:
        if not isinstance(section, dict):
            return section
        inner = section.get(name)
        section[name] = section = dict(inner) if isinstance(inner, dict) else {} if inner is None else inner
    return section


def _yield_to_typed(plain: dict[str, Any], assignment: Mapping[str, Value]) -> None:
    """What is typed for all runs goes before what a site's file says of one size."""
    section = plain.get("slurm")
    if isinstance(section, dict) and section.get("by_model"):
        typed = [path.removeprefix("slurm.") for path in assignment if path.startswith("slurm.")]
        section["by_model"] = without(section["by_model"], typed)


def _told_once(
    found: Mapping[Problem, tuple[list[int], Composition | None]],
    assignments: list[dict[str, Value]],
    settings: Mapping[str, Setting],
    of_study: Mapping[str, Setting],
) -> list[Problem]:
    """Each problem once, with the file it comes from and the runs it is in, where not in all of them."""
    told = []
    for problem, (numbers, composition) in found.items():
        notes = []
        origin = composition.origin(problem.where) if composition and problem.where else None
        if problem.where in of_study:
            notes.append("in the sweep of the study")
        elif problem.where not in settings and origin is not None:
            notes.append(f"in {shown_path(origin)}")
        if len(numbers) < len(assignments):
            same = [
                f"{key}={values.pop()}"
                for key, setting in settings.items()
                if len(setting.values) > 1
                and len(values := {assignments[number][key].text for number in numbers}) == 1
            ]
            which = f": {', '.join(same)}" if same else ""
            notes.append(f"in {len(numbers)} of {len(assignments)} runs{which}")
        noted = f" ({', '.join(notes)})" if notes else ""
        told.append(Problem(problem.where, f"{problem.what}{noted}", problem.code))
    return told
