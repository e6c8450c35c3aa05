"""Content hash of the code that decides a run's numbers. Standard library only.

Comments, docstrings and layout do not count: a file is hashed by its syntax tree. Parsing all files takes
half a second, so hashes are kept in the user's cache, by content.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.run_folder import read_file

ROOT = Path(__file__).resolve().parents[2]
COUNTED = (
    "core.py", "models", "training", "data_loading", "conf/budget.py",
    "conf/seeding.py", "conf/proportions.py", "conf/sizes.py",
)  # fmt: skip
"""Files and folders of code that decides numbers."""

NOT_COUNTED = (
    "models/costs",  # estimates of memory
    "training/devices/gpu_check.py", "training/distributed/memory_parts.py", "training/plan/memory_parts.py",
    "training/plan/memory_plan.py",
    # commands
    "data_loading/__main__.py", "data_loading/audit", "data_loading/commands", "data_loading/export_formats",
    "data_loading/find/catalogue.py", "data_loading/find/verify_set.py",
    "data_loading/tokenizers/contradictions.py", "data_loading/tokens/truncated_documents.py",
    "training/__main__.py", "training/commands", "training/export", "training/run/load_run.py",
    "training/own_parts/try_parts.py", "training/own_parts/facts.py", "training/own_parts/model_counts.py",
    # text to token sets, and how their bytes are read: a run names its data by fingerprint
    "data_loading/pretokenizer", "data_loading/readers", "data_loading/remote",
    # messages, records, signals, the other ranks
    "training/attempt", "training/devices/cuda_errors.py", "training/devices/device_facts.py",
    "training/devices/thread_waiting.py", "training/distributed/connections.py",
    "training/distributed/hostlist.py", "training/distributed/place.py", "training/distributed/rendezvous.py",
    "training/distributed/watch.py", "training/ensemble/allocator.py", "training/ensemble/log.py",
    "training/interrupt.py", "training/plan/describe.py", "training/plan/plan_problems.py",
    "training/report/external_logger.py", "training/report/log.py", "training/report/log_data.py",
    "training/report/memory_attribution.py", "training/report/metrics.py", "training/report/profiling.py",
    "training/report/progress_line.py", "training/run/exit_reason.py", "training/run/provenance.py",
)  # fmt: skip
"""Files and folders in these that do not."""

REMOVED = (
    "models/memory_loss.py", "models/memory_lstm.py", "models/memory_parts.py", "models/memory_saved.py",
    "models/memory_sizes.py", "training/attribution.py", "training/cuda_errors.py", "training/data_told.py",
    "training/device_facts.py", "training/ending.py", "training/ensemble/memory_parts.py",
    "training/gpu_check.py", "training/harness.py", "training/log.py", "training/logger.py",
    "training/memory_parts.py", "training/memory_plan.py", "training/memory_trace.py", "training/metrics.py",
    "training/moving_line.py", "training/plan_problems.py", "training/plan_words.py", "training/profiling.py",
    "training/provenance.py", "training/sampling.py", "training/saved_run.py", "training/spinning.py",
)  # fmt: skip
"""Files that were not counted when they existed: copies of the code of earlier submissions have them."""

_CACHE_NAME = "code-hashes-1.json"
"""The number is of the rule by which files are hashed."""
_MOST_CACHED = 10_000
_WITHOUT_MEANING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


@dataclass(frozen=True)
class CodeVersion:
    """hash: of all files, 16 hex digits. files: hash of each, by its path relative to the checkout."""

    hash: str
    files: dict[str, str]


@dataclass(frozen=True)
class Change:
    """A file that differs. status: changed, added or removed. added, removed: lines; None: not known."""

    path: str
    status: str
    added: int | None = None
    removed: int | None = None

    def __str__(self) -> str:
        if self.added is None or self.removed is None:
            return self.path if self.status == "changed" else f"{self.path} ({self.status})"
        return f"{self.path} (+{self.added} -{self.removed})"


@cache
def code_version(root: Path = ROOT) -> CodeVersion:
    """Version of the code of a checkout, as it is when a process first asks."""
    contents = {path: (root / path).read_bytes() for path in counted_files(root)}
    keys = {path: digest(content) for path, content in contents.items()}
    known = _read_cache()
    missing = {keys[path]: contents[path] for path in contents if keys[path] not in known}
    if missing:
        found = {key: digest(normalized(content)) for key, content in missing.items()}
        known = {**known, **found}
        _write_cache(known)
    files = {path: known[key] for path, key in keys.items()}
    return CodeVersion(digest(json.dumps(files).encode()), files)


def counted_files(root: Path) -> list[str]:
    """Paths of the files that decide numbers, relative to the checkout, sorted."""
    found: list[str] = []
    for top in COUNTED:
        place = root / top
        paths = place.rglob("*.py") if place.is_dir() else [place] if place.is_file() else []
        found += [path.relative_to(root).as_posix() for path in paths]
    return sorted(path for path in found if not _is_left_out(path))


def _is_left_out(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in (*NOT_COUNTED, *REMOVED))


def normalized(content: bytes) -> bytes:
    """Source without comments, docstrings and layout; as it is where it cannot be parsed.

    The result does not depend on the version of Python: versions add fields to syntax trees that are empty in
    older code, and only fields with a value are written.
    """
    try:
        return "\n".join(_words(ast.parse(content))).encode()
    except (SyntaxError, ValueError, RecursionError):
        return content


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in _WITHOUT_MEANING:
                continue
            if isinstance(node, ast.JoinedStr):
                value = _merged(value)
            yield name
            yield from _words(value)
        yield ")"
    elif isinstance(node, list):
        for one in node:
            if not _is_text_alone(one):
                yield from _words(one)
    else:
        yield ascii(node)


def _merged(parts: list[Any]) -> list[Any]:
    """Parts of an f-string, text next to text joined: versions of Python divide it differently."""
    found: list[Any] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, ast.Constant)):
        each = list(group)
        found += ["".join(part.value for part in each)] if is_text else each
    return [part for part in found if part != ""]


def _is_text_alone(node: Any) -> bool:
    """Whether it is a docstring, or another string that nothing is done with."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """Files whose hashes differ, sorted by path."""
    found = []
    for path in sorted({*before, *now}):
        if before.get(path) != now.get(path):
            status = "added" if path not in before else "removed" if path not in now else "changed"
            found.append(Change(path, status))
    return found


def digest(content: bytes) -> str:
    """The first 16 hex digits of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def _cache_path() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "highwater" / _CACHE_NAME


def _read_cache() -> dict[str, str]:
    try:
        return read_file(_cache_path()).value
    except RuntimeError:  # no home
        return {}


def _write_cache(known: dict[str, str]) -> None:
    """Best effort: without it the next process parses again."""
    with suppress(OSError, RuntimeError):
        path = _cache_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_json(path, dict(list(known.items())[-_MOST_CACHED:]))
