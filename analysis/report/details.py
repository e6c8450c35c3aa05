"""What a page tells of a run beside its row in the table: code, versions, data, cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from analysis.reading import Run
from experiment_utils.run_folder import RunFolder


@dataclass(frozen=True)
class Details:
    """commits: (hash, whether the tree was dirty) of its attempts. wall_s: of all attempts."""

    commits: frozenset[tuple[str, bool]]
    versions: dict[str, str]
    hosts: frozenset[str]
    data_path: str | None
    wall_s: float


def details_of(run: Run) -> Details:
    """From its run.json; of what is missing or damaged there it tells nothing."""
    folder = RunFolder(run.folder)
    attempts = list(_attempts(folder))
    path = folder.fact("data.path")
    return Details(
        commits=frozenset(_commits(attempts)),
        versions=_versions(attempts),
        hosts=frozenset(str(one["host"]) for one in attempts if one.get("host")),
        data_path=path if isinstance(path, str) else None,
        wall_s=sum(map(_lasted_s, attempts)),
    )


def _attempts(folder: RunFolder) -> Iterator[dict[str, Any]]:
    found = folder.run.get("attempts")
    yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


def _commits(attempts: list[dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    for attempt in attempts:
        code = attempt.get("code")
        if isinstance(code, dict) and isinstance(code.get("commit"), str):
            yield code["commit"], bool(code.get("dirty"))


def _versions(attempts: list[dict[str, Any]]) -> dict[str, str]:
    found = attempts[-1].get("versions") if attempts else None
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def _lasted_s(attempt: dict[str, Any]) -> float:
    begun, ended = _number(attempt.get("started_s")), _number(attempt.get("ended_s"))
    return max(0.0, ended - begun) if begun is not None and ended is not None else 0.0


def _number(value: Any) -> float | None:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_one else None
