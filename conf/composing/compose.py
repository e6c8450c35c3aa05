"""Yaml files to plain values: Hydra's composition, once for each distinct choice of groups.

What Hydra would compose is what comes out (a test holds them equal). It is done with Hydra's parts,
so that a sweep over many groups takes milliseconds a run and mistakes are ours to tell.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.composing.defaults_errors import problem_of
from conf.composing.hydra_setup import add_options, errors_of_files, first_line, prepare_hydra, search_path
from conf.composing.overrides import quoted
from conf.composing.yaml_sexagesimal import put_back_texts
from conf.keys import groups
from conf.parts_table import Part
from conf.suggestions import natural, nearest, nearest_keys
from experiment_utils.errors import Problem, UserError

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Composition:
    """The values of one choice of groups, before values from the command line.

    plain: nested plain values, interpolations as text. choices: group to option, for every group.
    sweep: the `hydra.sweeper.params` of a study. files: (file, the part of the config it fills,
    its content), later ones win. launcher: the option of hydra/launcher.
    """

    plain: dict[str, Any]
    choices: dict[str, str]
    sweep: dict[str, Any]
    files: list[tuple[Path, str, dict[Any, Any]]]
    launcher: str = "local"

    def origin(self, path: str) -> Path | None:
        """The file that a value comes from; None for a default of the schema."""
        for file, package, content in reversed(self.files):
            inner = path.removeprefix(f"{package}.") if package else path
            if (not package or inner != path) and _holds(content, inner):
                return file
        return None


class Composer:
    """Composes from conf/ and, after it, from a folder of the user's own.

    Methods raise UserError when a yaml file cannot be used.
    """

    def __init__(
        self,
        config_dir: Path | None = None,
        config_name: str = "config",
        searchpath: Sequence[str] = (),
    ) -> None:
        """searchpath: `hydra.searchpath=...` as given on the command line, if it was."""
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra.core.utils import setup_globals

        prepare_hydra()
        setup_globals()
        self.config_name = config_name
        self.config_dir = config_dir
        self._loader = ConfigLoaderImpl(search_path(config_dir))
        if not self._loader.repository.config_exists(config_name):
            raise UserError(
                Problem(
                    "--config-name",
                    f"there is no {config_name}.yaml in {config_dir or 'conf/'}",
                    "no-config-name",
                )
            )
        with errors_of_files():
            _, self._files = self._loader._parse_overrides_and_create_caching_repo(config_name, [*searchpath])
        self._composed: dict[tuple[tuple[str, str], ...], Composition] = {}
        self._contents: dict[str, tuple[Path | None, dict[Any, Any]]] = {}
        self._lists: dict[tuple[tuple[str, str], ...], tuple[list[ResultDefault], dict[str, str]]] = {}

    def is_group(self, name: str) -> bool:
        """Whether an option can be chosen for it."""
        return bool(re.fullmatch(r"[\w/-]+", name)) and name != "hydra" and self._files.group_exists(name)

    def options(self, group: str) -> list[str]:
        """Names of the options, in natural order: 48d before 112d."""
        return sorted(self._files.get_group_options(group), key=natural)

    def has_option(self, group: str, option: str) -> bool:
        """Whether there is a file of that name."""
        is_name = all(part and not part.startswith(".") for part in option.split("/"))
        return is_name and not option.endswith(".yaml") and self._files.config_exists(f"{group}/{option}")

    def add_parts(self, parts: Iterable[Part]) -> None:
        """Make the user's own parts options of their groups: `optimizer=NAME`, `arch=NAME`."""
        # Hydra's own store was copied when this was made
        add_options(self._files.get_sources()[-1].store, parts)  # type: ignore[attr-defined]

    def top_value(self, group: str, option: str, name: str) -> Any:
        """Value of a key outside of the groups in the file of an option; None if it has none."""
        with errors_of_files():
            return self._content(f"{group}/{option}")[1].get(name)

    def compose(self, choices: Mapping[str, str]) -> Composition:
        """The values of these choices; groups that are not among them keep their default option."""
        key = tuple(sorted(choices.items()))
        if key not in self._composed:
            with errors_of_files(), self._errors_of_defaults(choices):
                self._composed[key] = self._compose(choices)
        return self._composed[key]

    def hydra_part(
        self, choices: Mapping[str, str], arguments: list[str]
    ) -> tuple[DictConfig, list[Problem]]:
        """The config with all of Hydra's own part, and what is wrong with the arguments that set it.

        arguments: `hydra.launcher.jobs=2`, `hydra/sweeper=local` and the like.
        """
        from hydra.errors import HydraException
        from omegaconf import OmegaConf

        overrides = self._parsed(choices) + self._parse(arguments)
        with errors_of_files(), self._errors_of_defaults(choices):
            defaults, _, values = self._defaults_list(overrides)
            # Merging changes what it merges: not the files that `compose` keeps.
            files = copy.deepcopy(self._files)
            node = self._loader._compose_config_from_defaults_list(defaults=defaults, repo=files)
        OmegaConf.set_struct(node, True)
        OmegaConf.set_readonly(node.hydra, False)
        problems: list[Problem] = []
        for override in values:
            try:
                self._loader._apply_overrides_to_config([override], node)
            except HydraException as error:
                problems.append(_wrong_in_hydra(override.key_or_group, node, error))
        return node, problems

    @contextmanager
    def _errors_of_defaults(self, choices: Mapping[str, str]) -> Iterator[None]:
        from hydra.errors import ConfigCompositionException

        try:
            yield
        except (ConfigCompositionException, ValueError) as error:
            text = first_line(error)
            if type(error) is ValueError and "defaults list" not in text:
                raise
            composed = [f"{group}/{option}" for group, option in choices.items()]
            raise UserError(problem_of(error, text, self._files, composed)) from error

    def _compose(self, choices: Mapping[str, str]) -> Composition:
        defaults, chosen = self._list_of(choices)
        plain: dict[str, Any] = {}
        files, launcher = [], "local"
        for entry in defaults:
            if str(entry.config_path).startswith("hydra/"):
                group, _, option = str(entry.config_path).rpartition("/")
                launcher = option if group == "hydra/launcher" else launcher
                continue
            file, content = self._content(str(entry.config_path))
            package = (entry.package or "").removeprefix("_global_").removeprefix(".")
            if file is not None:
                files.append((file, package, content))
            for part in reversed(package.split(".") if package else []):
                content = {part: content}
            _merge(plain, content)
        sweep = ((plain.pop("hydra", None) or {}).get("sweeper") or {}).get("params") or {}
        for group, option in chosen.items():
            section = plain.get(group)
            if group in groups() and isinstance(section, dict) and section.get("name", "") is None:
                section["name"] = option.rpartition("/")[2]
        return Composition(plain, chosen, sweep, files, launcher)

    def _content(self, config_path: str) -> tuple[Path | None, dict[Any, Any]]:
        """The file of a config path, None for one of Hydra's own making, and what it says."""
        if config_path not in self._contents:
            from omegaconf import OmegaConf

            loaded = self._files.load_config(config_path)
            assert loaded is not None
            folder = loaded.path.removeprefix("file://")
            file = Path(folder) / f"{config_path}.yaml" if folder != loaded.path else None
            content = OmegaConf.to_container(loaded.config, resolve=False)
            if not isinstance(content, dict):
                raise UserError(f"{file}: expected keys and values, got {type(content).__name__}")
            if file is not None:
                put_back_texts(content, file)
            self._contents[config_path] = file, content
        return self._contents[config_path]

    def _list_of(self, choices: Mapping[str, str]) -> tuple[list[ResultDefault], dict[str, str]]:
        """The files of these choices in the order in which they are merged, and every group's option.

        Hydra's list is the slow part. An option file without a defaults list and package of its own
        can take the place of another such file of its group, so one list serves all of them.
        """
        stands_for = {group: self._stand_in(group, option) for group, option in choices.items()}
        key = tuple(sorted(stands_for.items()))
        if key not in self._lists:
            defaults, chosen, _ = self._defaults_list(self._parsed(stands_for))
            self._lists[key] = defaults, chosen
        defaults, chosen = self._lists[key]
        if stands_for != choices and self._chooses_by_choices(defaults):
            return self._defaults_list(self._parsed(choices))[:2]
        swapped = {f"{group}/{stands_for[group]}": f"{group}/{option}" for group, option in choices.items()}
        return [
            dataclasses.replace(entry, config_path=swapped.get(str(entry.config_path), entry.config_path))
            for entry in defaults
        ], {**chosen, **choices}

    def _stand_in(self, group: str, option: str) -> str:
        """The first option of the group whose file is as simple as this one's; else the option itself."""
        if not self._is_simple(group, option):
            return option
        return next((other for other in self.options(group) if self._is_simple(group, other)), option)

    def _is_simple(self, group: str, option: str) -> bool:
        loaded = self._files.load_config(f"{group}/{option}")
        return loaded is not None and not loaded.defaults_list and loaded.header["package"] is None

    def _chooses_by_choices(self, defaults: list[ResultDefault]) -> bool:
        """Whether a defaults list among these files holds an interpolation: `${model}_tokens`."""
        loaded = [self._files.load_config(str(entry.config_path)) for entry in defaults]
        listed = [entry for file in loaded if file is not None for entry in file.defaults_list or []]
        return any("${" in str(vars(entry)) for entry in listed)

    def _defaults_list(self, overrides: list[Any]) -> tuple[list[ResultDefault], dict[str, str], list[Any]]:
        """(files in order, group to option, overrides that set values)."""
        from hydra._internal.defaults_list import create_defaults_list

        made = create_defaults_list(
            repo=self._files,
            config_name=self.config_name,
            overrides_list=overrides,
            prepend_hydra=True,
            skip_missing=False,
        )
        known = made.overrides.known_choices.items()
        chosen = {group: option for group, option in known if option and not group.startswith("hydra/")}
        return made.defaults, chosen, made.config_overrides

    def _parsed(self, choices: Mapping[str, str]) -> list[Any]:
        """The choices as Hydra's overrides; a group that our config.yaml does not list is added to it."""
        signs = {group: "" if group in groups() else "+" for group in choices}
        return self._parse([f"{signs[group]}{group}={quoted(option)}" for group, option in choices.items()])

    def _parse(self, arguments: list[str]) -> list[Any]:
        from hydra.core.override_parser.overrides_parser import OverridesParser

        return OverridesParser.create().parse_overrides(arguments)


def _wrong_in_hydra(path: str, node: DictConfig, error: Exception) -> Problem:
    from omegaconf import OmegaConf

    parent, _, name = path.rpartition(".")
    section = OmegaConf.select(node, parent)
    if not OmegaConf.is_dict(section) or name in section:
        return Problem(path, first_line(error.__cause__ or error))
    close = [f"{parent}.{one}" for one in nearest(name, map(str, section))] or nearest_keys(path)
    return Problem(path, "no such key" + (f"; nearest: {close[0]}" if close else ""))


def _merge(into: dict[Any, Any], content: Mapping[Any, Any]) -> None:
    """Merge as OmegaConf does: mappings key by key, everything else replaced; `???` replaces nothing."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            if not isinstance(into.get(name), dict):
                into[name] = {}
            _merge(into[name], value)
        elif value != "???" or name not in into:
            into[name] = value


def _holds(content: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return False
        content = content[part]
    return True
