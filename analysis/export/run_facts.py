"""Facts of a run for an export, and the keys that never leave the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.reading.facts import facts_of
from conf.composing.run_identity import WHERE_IT_RUNS
from experiment_utils.json_values import finite
from experiment_utils.run_folder import RunFolder
from training.attempt.run_files import state_of


@dataclass(frozen=True)
class RunFacts:
    """label: a name that no other of the same export has. identity: of docs/run-folder.md.

    columns: facts in each row of a csv. config: path to value, without the keys that say
    where it runs: a webhook, an account and lines of shell are private.
    """

    label: str
    folder: Path
    identity: str | None = None
    study: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    notes: str = ""
    attempts: Any = None


def facts_of_run(folder: Path, label: str | None = None) -> RunFacts:
    """Facts of a run folder of ours, in any state."""
    run, found = RunFolder(folder), facts_of(folder)
    values, config = found["values"], found["config"]
    tags = values["tags"] if isinstance(values["tags"], list) else []
    return RunFacts(
        label=label or run.name,
        folder=folder,
        identity=values["identity"] if isinstance(values["identity"], str) else None,
        study=folder.resolve().parent.name,
        columns={name: values[name] for name in ("model", "lr", "seed")},
        config={path: value for path, value in config.items() if path.split(".")[0] not in WHERE_IT_RUNS},
        counts={
            name: values[name]
            for name in ("parameters", "non_embedding", "flops_per_token", "budget_tokens", "steps", "data")
            if values[name] is not None
        },
        tags=[str(tag) for tag in tags],
        notes=str(values["notes"] or ""),
        attempts=run.run.get("attempts"),
    )


def ending_of(folder: Path) -> tuple[str | None, dict[str, Any]]:
    """(state, what came out of it: finite numbers and words of `results` in run.json, by name)."""
    return state_of(folder), dict(_flat(RunFolder(folder).run.get("results"), ""))


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    found: dict[str, Any] = {}
    for path, value in flat.items():
        *groups, name = path.split(".")
        inside = found
        for group in groups:
            inside = inside.setdefault(group, {})
        inside[name] = value
    return found


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        behind = f"{path}/" if path else ""
        return [pair for name, one in value.items() for pair in _flat(one, f"{behind}{name}")]
    is_known = isinstance(value, str) or finite(value) is not None
    return [(path, value)] if is_known and path else []
