"""The settings of a command line or of a study's sweep, held against the names that there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conf.composing.check import unknown_key
from conf.composing.compose import Composer
from conf.composing.overrides import Setting, Value, argument_of, as_typed, parse
from conf.keys import groups, keys
from conf.per_model_slurm import is_mapping, merged
from conf.suggestions import nearest, no_such
from experiment_utils.errors import Problem

_PLUGINS = {
    "optuna": "hydra-optuna-sweeper",
    "ax": "hydra-ax-sweeper",
    "nevergrad": "hydra-nevergrad-sweeper",
}
"""Options of Hydra's groups that are installed by themselves, and the packages that bring them."""


_OF_HYDRA = ("launcher", "sweeper", "searchpath", "mode", "callbacks", "verbose")
"""What of Hydra's own part has an effect."""
_AS_IT_IS = {
    "hydra.run.dir": ".",
    "hydra.sweep.dir": "${runs_dir}",
    "hydra.sweep.subdir": ".",
    "hydra.output_subdir": None,
    "hydra.job.chdir": False,
}
"""Values of the rest that conf/config.yaml sets, which a user's copy of it may hold too."""


@dataclass
class Settings:
    """by_key: of this program, by config path or group. of_hydra: of Hydra's own part."""

    by_key: dict[str, Setting] = field(default_factory=dict)
    of_hydra: list[Setting] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_settings(arguments: Iterable[str], composer: Composer, *, split: bool) -> Settings:
    """Parse the arguments and look every name up.

    split: commas in a value that Hydra's grammar cannot read make it a sweep, as in one that it can.
    """
    settings = Settings()
    for argument in arguments:
        parsed = parse(argument, composer.options, split=split)
        if isinstance(parsed, Problem):
            settings.problems.append(parsed)
        elif parsed.is_of_hydra:
            _read_of_hydra(parsed, composer, settings)
        elif parsed.is_delete:
            settings.problems.append(_cannot_delete(parsed.key))
        elif parsed.key in groups() or (parsed.key not in keys() and composer.is_group(parsed.key)):
            _read_choice(parsed, composer, settings)
        elif parsed.key in keys():
            settings.problems += _loses_sweep(settings.by_key.get(parsed.key), parsed)
            settings.by_key[parsed.key] = _with_mapping(parsed, settings)
        else:
            settings.problems.append(unknown_key(parsed.key))
    return settings


def _loses_sweep(before: Setting | None, setting: Setting) -> list[Problem]:
    """A sweep that the same key, given again after it, would replace; one value may replace another."""
    if before is None or len(before.values) < 2:
        return []
    first, then = (one.argument.partition("=")[2] for one in (before, setting))
    return [Problem(setting.key, f"is given twice: the sweep {first} would be lost to {then}. Keep one")]


def _with_mapping(setting: Setting, settings: Settings) -> Setting:
    """The setting; of a mapping, of which several may be given, with what was given of it before."""
    if not is_mapping(keys()[setting.key]):
        return setting
    if setting.is_sweep:
        settings.problems.append(
            Problem(setting.key, "cannot be swept: it says what each size asks for, and changes no run")
        )
        setting = dataclasses.replace(setting, values=setting.values[:1], is_sweep=False)
    before = settings.by_key.get(setting.key)
    whole = merged(before.values[0].value if before else {}, setting.values[0].value)
    value = Value(whole, as_typed(whole))
    return dataclasses.replace(setting, values=(value,), argument=argument_of(setting.key, value.text))


def option_name(value: Value) -> str:
    """The option that a value names: `256` of model=256 too."""
    return value.value if isinstance(value.value, str) else value.text


def _read_choice(setting: Setting, composer: Composer, settings: Settings) -> None:
    group = setting.key
    if group in settings.by_key:
        before = option_name(settings.by_key[group].values[0])
        settings.problems.append(
            Problem(group, f"is chosen twice: {before} and {option_name(setting.values[0])}")
        )
        return
    if group == "study" and setting.is_sweep:
        settings.problems.append(Problem(group, "one study at a time; start each by itself"))
        setting = dataclasses.replace(setting, values=setting.values[:1], is_sweep=False)
    there = []
    for value in setting.values:
        if isinstance(value.value, dict | list):
            first = keys_example(group)
            what = (
                f"expected the name of an option; to set a key of it: {first}" if first else "expected a name"
            )
            settings.problems.append(Problem(group, what))
        elif value.value is None or not composer.has_option(group, option_name(value)):
            settings.problems.append(no_such_option(group, option_name(value), composer.options(group)))
        else:
            there.append(value)
    if not there:
        return
    sign = "" if group in groups() else "+"
    argument = sign + setting.argument
    settings.by_key[group] = dataclasses.replace(setting, values=tuple(there), argument=argument)


_FILES = (".txt", ".npy", ".jsonl", ".parquet", ".gz", ".zst")
"""How names of files end that a user may take for names of datasets."""


def _read_of_hydra(setting: Setting, composer: Composer, settings: Settings) -> None:
    if setting.is_sweep:
        settings.problems.append(
            Problem(setting.key, "cannot be swept: it is the same for all runs of a sweep")
        )
    elif "/" in setting.key and setting.values:
        name = option_name(setting.values[0])
        if composer.is_group(setting.key) and (problem := without_effect(setting.key, name)):
            settings.problems.append(problem)
        elif composer.is_group(setting.key) and composer.has_option(setting.key, name):
            settings.of_hydra.append(setting)
        elif composer.is_group(setting.key):
            problem = no_such_option(setting.key, name, composer.options(setting.key))
            if name in _PLUGINS:
                problem = Problem(
                    problem.where, f"{problem.what}. It comes with: pip install {_PLUGINS[name]}"
                )
            settings.problems.append(problem)
        else:
            close = nearest(setting.key, [f"hydra/{group}" for group in ("launcher", "sweeper")])
            settings.problems.append(
                Problem(
                    setting.key,
                    "Hydra has no such group" + (f"; nearest: {', '.join(close)}" if close else ""),
                )
            )
    else:
        value = setting.values[0].value if setting.values else None
        if (problem := without_effect(setting.key, value)) is None:
            settings.of_hydra.append(setting)
        else:
            settings.problems.append(problem)


def without_effect(path: str, value: Any) -> Problem | None:
    """The problem of a key of Hydra that nothing reads; None at the value that describes what happens."""
    part = path.replace("/", ".").split(".")[1]
    if part in _OF_HYDRA or (path in _AS_IT_IS and _AS_IT_IS[path] == value):
        return None
    instead = (
        "a run's folder is RUNS_DIR/STUDY/NAME: set runs_dir= and study.name="
        if part in ("run", "sweep", "output_subdir")
        else "runs start in the folder where you are, and paths are relative to it"
        if path == "hydra.job.chdir"
        else f"those that do: {', '.join(f'hydra.{one}' for one in _OF_HYDRA)}"
    )
    return Problem(path, f"has no effect here; {instead}")


def without_effect_in(content: Mapping[Any, Any]) -> list[Problem]:
    """The same for the `hydra:` section of a file."""
    found: list[Problem] = []

    def look(path: str, value: Any) -> None:
        if isinstance(value, Mapping) and path.count(".") < 2:
            for name, inner in value.items():
                look(f"{path}.{name}", inner)
        elif (problem := without_effect(path, value)) is not None:
            found.append(problem)

    section = content.get("hydra")
    if isinstance(section, Mapping):
        look("hydra", section)
    return found


def no_such_option(group: str, given: str, options: list[str]) -> Problem:
    """The problem of an option that a group lacks."""
    told = no_such("size" if group == "model" else "option", given, options)
    if group == "dataset" and ("/" in given or given.endswith(_FILES)):
        typed = f"dataset=hf dataset.path={given}" if given.startswith("hf://") else f"dataset.path={given}"
        told += f". This is a place, not a name: {typed}"
    return Problem(group, told)


def keys_example(group: str) -> str | None:
    """A key of the group as one would set it."""
    first = next(
        (key for key in keys().values() if key.path.startswith(f"{group}.") and key.name != "name"), None
    )
    return f"{first.path}=VALUE" if first else None


def _cannot_delete(path: str) -> Problem:
    key = keys().get(path)
    if key is None and path not in groups():
        return unknown_key(path)
    if key is None:
        hint = f"choose another one with {path}=NAME" if path != "study" else "leave study= out for none"
    elif key.optional:
        hint = f"{path}=null is none"
    else:
        default = str(key.default).lower() if isinstance(key.default, bool) else key.default
        hint = f"its default is {path}={default}"
    return Problem(path, f"cannot be deleted, every key has a value; {hint}")
