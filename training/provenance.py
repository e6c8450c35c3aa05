"""What an attempt ran with: code, versions, job; and whether config and data are those of earlier ones."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Problem, UserError
from conf.differences import changes
from conf.overrides import typed_at
from experiment_utils import is_in_identity

if TYPE_CHECKING:
    from training.plan import Plan

SNAPSHOT_MANIFEST = ".snapshot.json"
"""In a copy of the code that was made for a job (`slurm.snapshot`)."""


def provenance() -> dict[str, Any]:
    """Of this process: git commit of the code, versions of packages, Slurm's names for the job."""
    root = Path(__file__).resolve().parent.parent
    return {"job_ids": job_ids(), "code": code_version(root), "versions": versions()}


def code_version(root: Path) -> dict[str, Any]:
    """Git commit of the code and whether the working tree differs from it; None where there is no git.

    Of a job's copy of the code what it was copied from, and the name of the copy: a checkout around it is
    another matter.
    """
    manifest = read_manifest(root)
    if manifest is not None:
        return {key: manifest.get(key) for key in ("commit", "dirty")} | {"snapshot": root.name}

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def read_manifest(root: Path) -> dict[str, Any] | None:
    """What is known of a job's copy of the code; None where `root` is none."""
    try:
        found = json.loads((root / SNAPSHOT_MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "tokenizers", "fastokens", "safetensors", "hydra-core"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def job_ids() -> dict[str, str]:
    """Slurm's own names for this job, where it is one."""
    names = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")
    return {name: os.environ[name] for name in names if name in os.environ}


def check_same_run(folder: Path, before: dict[str, Any], plan: Plan) -> None:
    """Refuse to go on with another config or other data than the earlier attempts had.

    before: run.json as the last attempt left it, empty without one.

    Raises:
        UserError: what changed, from what to what, and how to go on.
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
                f"{_short(data_now)}, was {_short(data_before)}). Bring the old token files back, or type "
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
                "the run as it was: undo the edit to go on with it, or type its command with "
                f"{keys or 'the other values'} to start another run",
            )
        )
    raise UserError(*problems)


def _short(data: dict[str, Any]) -> str:
    return str(data.get("fingerprint"))[:8]
