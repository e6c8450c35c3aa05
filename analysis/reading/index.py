"""Cache of the facts of all runs of a study. It can be deleted at any time.

It is one file in the study's folder or, if that is read-only, in the user's cache folder. An entry is valid
while size, time and inode of each file that it was read from are the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.reading.facts import FILES, VERSION, facts_of
from experiment_utils import atomic_files

log = logging.getLogger("analysis")

NAME = ".analysis-index.json"
LEAST_RUNS = 32
"""Fewer runs are read as fast as an index."""
_TOO_FRESH_S = 2.0
"""A file written this shortly before it was read can change again without a new time."""

Stamp = list[list[int]]


def read_facts(study: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Facts of the runs with these names in a study's folder, in their order."""
    known = _load(study) if len(names) >= LEAST_RUNS else {}
    found, entries, changed = [], {}, set(known) - set(names) != set()
    base = known[next(iter(known))]["facts"]["config"] if known else {}
    now_s = time.time()
    for name in names:
        folder = study / name
        stamp = _stamp(folder)
        entry = known.get(name)
        if entry is None or entry["stamp"] != stamp:
            entry = {"stamp": stamp, "facts": facts_of(folder)}
            changed = True
        found.append(entry["facts"])
        is_old = max((one[0] for one in stamp), default=0) < (now_s - _TOO_FRESH_S) * 1e9
        if is_old and not entry["facts"]["damage"]:  # another user can perhaps read what this one cannot
            entries[name] = entry
    if changed and len(names) >= LEAST_RUNS:
        _save(study, entries, base)
    return found


def _stamp(folder: Path) -> Stamp:
    """Time, size and inode of each file, zeros if it does not exist."""
    found = []
    for name in FILES:
        try:
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - a Path for each is a third of the time
            found.append([status.st_mtime_ns, status.st_size, status.st_ino])
        except OSError:
            found.append([0, 0, 0])
    return found


def _places(study: Path) -> list[Path]:
    """Possible places of the index, the best first."""
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    digest = hashlib.sha256(str(study.resolve()).encode()).hexdigest()[:16]
    return [study / NAME, Path(home) / "highwater" / "analysis" / f"{digest}.json"]


def _load(study: Path) -> dict[str, dict[str, Any]]:
    """Name to entry; empty without an index that can be used."""
    for place in _places(study):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            index = json.loads(place.read_bytes())
            if index["version"] != VERSION or index["files"] != list(FILES):
                continue
            base = index["config"]
            return {name: _whole(entry, base) for name, entry in index["runs"].items()}
    return {}


def _whole(entry: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """The entry with its whole configuration: stored are only the differences from `base`."""
    facts = entry["facts"]
    config = {**base, **facts["config"]}
    for path in facts["lacks"]:
        config.pop(path, None)
    whole = {
        "values": facts["values"],
        "config": config,
        "damage": facts["damage"],
        "metrics": facts["metrics"],
    }
    kinds = (dict, dict, list, dict)
    if not all(isinstance(part, kind) for part, kind in zip(whole.values(), kinds, strict=True)):
        raise TypeError("not an entry of ours")
    return {"stamp": entry["stamp"], "facts": whole}


def _save(study: Path, entries: dict[str, dict[str, Any]], base: dict[str, Any]) -> None:
    if not base and entries:
        base = next(iter(entries.values()))["facts"]["config"]
    runs = {}
    for name, entry in entries.items():
        facts = entry["facts"]
        config = {path: value for path, value in facts["config"].items() if base.get(path, ...) != value}
        lacks = [path for path in base if path not in facts["config"]]
        stored = {**facts, "config": config, "lacks": lacks}
        runs[name] = {"stamp": entry["stamp"], "facts": stored}
    text = json.dumps({"version": VERSION, "files": FILES, "config": base, "runs": runs}, default=str)
    for place in _places(study):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write_text(place, text)
            return
        except OSError as error:
            log.debug("no index at %s: %s", place, error)
