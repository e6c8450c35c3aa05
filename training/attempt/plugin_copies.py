"""Copies of the user's plugins that a run is computed with, and the hashes by which a change is seen.

    RUNS_DIR/.plugins/HASH/NAME       a copy of a file or folder, once for each content
    RUN/plugins.json                  plugin as in config.yaml -> HASH; a module is hashed and not copied

So a job computes with the plugin as it was submitted, whatever is edited while it waits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from conf.own_parts.plugin_files import files_of, is_path
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.json_values import mapping
from experiment_utils.run_folder import read_file
from training.attempt.code_record import with_lines
from training.attempt.code_version import Change, changed, digest, normalized

FILE, FOLDER = "plugins.json", ".plugins"


def hash_of(plugin: str) -> str:
    """Content hash of a plugin, 16 hex digits; comments and layout do not count.

    Raises:
        UserError: it is gone.
    """
    files = files_of(plugin)
    if not files:
        raise UserError(Problem("plugins", f"{plugin} is gone: bring it back, or name another", "no-plugin"))
    root = files[0].parent
    each = [f"{os.path.relpath(one, root)} {digest(normalized(one.read_bytes()))}" for one in files]
    return digest("\n".join(each).encode())


def keep_plugins(folder: Path, plugins: list[str]) -> None:
    """Copy the plugins of a run, and note in its folder which copies are its own."""
    if not plugins:
        return
    hashes = {plugin: hash_of(plugin) for plugin in plugins}
    for plugin, found in hashes.items():
        if is_path(plugin):
            _copy(Path(plugin), copies_folder(folder) / found)
    atomic_files.write_json(folder / FILE, {"version": 1, "plugins": hashes})


def hashes_of(folder: Path) -> dict[str, str]:
    """Plugin to its hash, of a run; empty if it has none."""
    found = mapping(mapping(read_file(folder / FILE).value).get("plugins"))
    return {str(plugin): str(one) for plugin, one in found.items()}


def copies_of(folder: Path) -> dict[str, Path]:
    """Plugin to its copy, of a run; those of installed modules have none."""
    found = {
        plugin: copies_folder(folder) / one / Path(plugin).name
        for plugin, one in hashes_of(folder).items()
        if is_path(plugin)
    }
    return {plugin: place for plugin, place in found.items() if place.exists()}


def copies_folder(folder: Path) -> Path:
    """Folder of all copies, of the runs_dir that a run is in."""
    return folder.absolute().parent.parent / FOLDER


def plugin_changes(
    folder: Path, before: Mapping[str, str], places: Mapping[str, Path] | None = None
) -> list[Change]:
    """Files of plugins that are not as a run's earlier attempt had them, with lines added and removed.

    Args:
        before: plugin to the hash that it had.
        places: plugin to the file or folder that counts now; None: where it was named.
    """
    found: list[Change] = []
    for plugin, was in before.items():
        place = Path((places or {}).get(plugin, plugin))
        is_now = hash_of(str(place)) if files_of(str(place)) else None
        if is_now == was:
            continue
        old = copies_folder(folder) / was
        name = Path(plugin).name
        changes = _file_changes(old / name, place) if is_path(plugin) and (old / name).exists() else []
        found += [with_lines(one, old, place.parent) for one in changes] or [
            Change(plugin, "changed" if is_now else "removed")
        ]
    return found


def _file_changes(old: Path, now: Path) -> list[Change]:
    """Changes of the files of two plugins, by their paths relative to the folders that these are in."""
    each = [
        {
            os.path.relpath(file, place.parent): digest(normalized(file.read_bytes()))
            for file in files_of(str(place))
        }
        for place in (old, now)
    ]
    return changed(*each)


def _copy(source: Path, place: Path) -> None:
    """Copy the Python files of a plugin below `place`, which appears whole or not at all."""
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as temporary:
        new = Path(temporary) / "copy"
        for file in files_of(str(source)):
            target = new / source.name / (file.relative_to(source) if source.is_dir() else "")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        with suppress(OSError):  # another process was first
            new.rename(place)
