"""Facts of a run on a page that are not in its row: code, versions, data, cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from analysis.reading import Run
from experiment_utils.json_values import finite, mapping, text
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
    """Read them from its run.json; missing or damaged facts are left empty."""
    folder = RunFolder(run.folder)
    attempts = folder.attempts
    path = folder.fact("data.path")
    return Details(
        commits=frozenset(_commits(attempts)),
        versions=_versions(attempts),
        hosts=frozenset(str(one["host"]) for one in attempts if one.get("host")),
        data_path=text(path) or None,
        wall_s=sum(map(_lasted_s, attempts)),
    )


def _commits(attempts: list[dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    for attempt in attempts:
        code = attempt.get("code")
        if isinstance(code, dict) and isinstance(code.get("commit"), str):
            yield code["commit"], bool(code.get("dirty"))


def _versions(attempts: list[dict[str, Any]]) -> dict[str, str]:
    found = mapping(attempts[-1].get("versions")) if attempts else {}
    return {str(name): str(version) for name, version in found.items()}


def _lasted_s(attempt: dict[str, Any]) -> float:
    begun, ended = finite(attempt.get("started_s")), finite(attempt.get("ended_s"))
    return max(0.0, ended - begun) if begun is not None and ended is not None else 0.0
