"""Run the plugins of a configuration, so that its parts have their code.

A plugin is part of an experiment that can be repeated. It is refused if it prints, ends the process or draws
random numbers as it is imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import random
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from conf import parts_table
from conf.own_parts.call import describe, line_in
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.plugin_files import is_path
from conf.own_parts.register import REGISTERED, Registered
from conf.own_parts.use import use_plugins
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError

_PACKAGE = "highwater_plugins"
_LOADED: set[str] = set()


def load_plugins(plugins: list[str], copies: Mapping[str, Path] | None = None) -> None:
    """Read and run plugins.

    Args:
        plugins: as config.yaml records them.
        copies: file or folder to run in place of one of them: its copy of the run.

    Raises:
        UserError: a plugin cannot be read, or fails as it is run; names FILE:LINE.
    """
    use_plugins(plugins, around=False, copies=copies)
    for plugin in plugins:
        if plugin in _LOADED:
            continue
        place = parts_table.place_of(plugin)
        files = {str(part.file) for part in parts_table.parts() if part.plugin == plugin}
        with _as_user_error(place, files):
            _run(plugin, place)
        _LOADED.add(plugin)


def code_of(kind: str, name: str) -> Registered:
    """The code of a part whose plugin was run.

    Raises:
        UserError: the plugin registers it in its source, but not as it is run.
    """
    found = REGISTERED.get((kind, name))
    if found is None:
        part = parts_table.part(name)
        where = part.place if part is not None else "plugins"
        raise UserError(
            Problem(where, f"{kind} {name} was not registered as the file was run", "not-registered")
        )
    return found


def own_part(config: Any, kind: str) -> tuple[Part, Registered, Any] | None:
    """The part of this kind that a configuration uses: its registration, code and options; None: one of ours.

    Raises:
        UserError: as `code_of`, or its options refuse their values.
    """
    part = next((one for one in parts_in_use(config) if one.kind == kind), None)
    return None if part is None else (part, code_of(kind, part.name), options_of(config, part))


def options_of(config: Any, part: Part) -> Any:
    """Options of a part at their values in the configuration; None if it has none.

    Raises:
        UserError: the dataclass refuses the values.
    """
    try:
        return code_of(part.kind, part.name).options_at(dict(config.own.get(part.name, {})))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            Problem(f"own.{part.name}", f"{part.place}: {describe(error)}", "options-refused")
        ) from error


def _run(plugin: str, place: str) -> None:
    if not is_path(place):
        importlib.import_module(place)
        return
    path = Path(place)
    if path.is_file():
        _run_file(path, None)
    elif not (path / "__init__.py").is_file():
        for file in sorted(path.glob("*.py")):
            _run_file(file, None)
    else:
        _run_file(path / "__init__.py", path)
        for file in dict.fromkeys(part.file for part in parts_table.parts() if part.plugin == plugin):
            if file.name != "__init__.py":
                inner = file.relative_to(path).with_suffix("").parts
                importlib.import_module(".".join([_module_name(path), *inner]))


def _run_file(file: Path, package: Path | None) -> None:
    name = _module_name(package or file)
    locations = [str(package)] if package is not None else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=locations)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(_PACKAGE, ModuleType(_PACKAGE))
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _module_name(place: Path) -> str:
    path = hashlib.sha256(str(place).encode()).hexdigest()[:6]  # plugins can have the same name
    return f"{_PACKAGE}.{place.stem.replace('-', '_')}_{path}"


@contextmanager
def _as_user_error(plugin: str, files: set[str]) -> Iterator[None]:
    printed, before = _Printed(files), _random_states()
    try:
        with redirect_stdout(printed):
            yield
    except UserError:
        raise
    except SystemExit as error:
        where = line_in(error, files) or plugin
        raise UserError(
            Problem(where, "ends the process as it is imported (sys.exit)", "plugin-exits")
        ) from error
    except ModuleNotFoundError as error:
        where = line_in(error, files) or plugin
        what = f"needs the package {error.name}, which this Python ({sys.executable}) lacks"
        raise UserError(Problem(where, what, "plugin-needs-package")) from error
    except Exception as error:
        raise UserError(Problem(line_in(error, files) or plugin, describe(error), "plugin-fails")) from error
    if printed.where is not None:
        what = f"prints as it is imported: {printed.text.strip()!r}. Remove it, or put it in a function"
        raise UserError(Problem(printed.where, what, "plugin-prints"))
    if any(was not in (None, now) for was, now in zip(before, _random_states(), strict=True)):
        what = (
            "draws or seeds global random numbers as it is imported: runs would depend on it. Use a generator"
        )
        raise UserError(Problem(plugin, what, "plugin-draws"))


class _Printed(io.StringIO):
    """Standard output while a plugin runs. where: file and line of the plugin that wrote first."""

    def __init__(self, files: set[str]) -> None:
        super().__init__()
        self.files, self.where, self.text = files, None, ""

    def write(self, text: str) -> int:
        if self.where is None:
            frames = [one for one in traceback.extract_stack() if one.filename in self.files]
            self.where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None  # type: ignore[assignment]
            self.text = text
        return len(text)


def _random_states() -> tuple[Any, ...]:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    states: list[Any] = [random.getstate()]
    # a module that the plugin itself imported begins with a state of its own
    states.append(None if numpy is None else str(numpy.random.get_state()))
    states.append(
        None if torch is None or not hasattr(torch, "get_rng_state") else torch.get_rng_state().tolist()
    )
    return tuple(states)
