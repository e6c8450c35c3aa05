"""Code, versions and job of an attempt; checks that config and data are those of earlier attempts."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.composing.differences import changes
from conf.composing.overrides import typed_at
from conf.composing.run_identity import is_in_identity
from experiment_utils.errors import Problem, UserError
from training.attempt.code_record import record_code
from training.attempt.plugin_copies import hashes_of
from training.attempt.run_files import job_ids

if TYPE_CHECKING:
    from training.plan.run_plan import Plan


def provenance(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    """Code, versions of packages and Slurm's ids of the job, for an attempt of this process.

    Args:
        before: run.json of the last attempt, empty without one.
    """
    code = record_code(folder)
    plugins = hashes_of(folder)
    if plugins:
        code["plugins"] = plugins
    last = (before.get("attempts") or [{}])[-1]
    earlier = (last.get("code") or {}).get("hash")
    if earlier not in (None, code["hash"]) and not before.get("again"):
        code["differs_from_attempt"] = last.get("attempt")
    return {"job_ids": job_ids(), "code": code, "versions": versions()}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "tokenizers", "fastokens", "safetensors", "hydra-core"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_same_run(folder: Path, before: dict[str, Any], plan: Plan) -> None:
    """Refuse to resume with another config or other data than earlier attempts had.

    before: run.json of the last attempt, empty without one.

    Raises:
        UserError: names each change, its old and new value, and how to continue.
    """
    now = plan.to_json()
    if before.get("identity") in (None, now["identity"]):
        return
    data_before, data_now = before.get("data") or {}, now["data"] or {}
    edited = changes(before.get("config") or now["config"], now["config"], is_in_identity).items()
    has_other_data = data_before.get("fingerprint") != data_now.get("fingerprint")
    problems = []
    if has_other_data:
        problems.append(
            Problem(
                str(folder),
                f"the tokens of {data_now.get('path')} are not those of its earlier attempts (fingerprint "
                f"{_short(data_now)}, was {_short(data_before)}). Restore the old token files, or type "
                "the command again to start a new run with these",
            )
        )
    if edited or not has_other_data:
        typed = [(key, typed_at(key, old), typed_at(key, new)) for key, (old, new) in edited]
        which = ", ".join(f"{key} is {new}, was {old}" for key, old, new in typed)
        keys = " ".join(f"{key}={new}" for key, _, new in typed)
        problems.append(
            Problem(
                str(folder / "config.yaml"),
                f"was edited after the last attempt{f': {which}' * bool(which)}. The checkpoints here are of "
                "the run as it was: undo the edit to resume it, or type its command with "
                f"{keys or 'the other values'} to start another run",
            )
        )
    raise UserError(*problems)


def _short(data: dict[str, Any]) -> str:
    return str(data.get("fingerprint"))[:8]
