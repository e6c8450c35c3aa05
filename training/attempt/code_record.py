"""RUN/code/: the code that an attempt computed with, and its difference from its commit, once per content.

    RUN/code/HASH.json   commit, dirty, snapshot (the name of a job's copy of the code), hash of each file
    RUN/code/HASH.diff   Python files as `git diff` against that commit; only where they differ from it

HASH is that of `code_version`; `attempts[].code.hash` of run.json names it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.json_values import mapping
from experiment_utils.modules import rooms_in
from experiment_utils.run_folder import WHOLE, read_file
from training.attempt.code_version import COUNTED, ROOT, Change, CodeVersion, changed, code_version

FOLDER = "code"
SNAPSHOT_MANIFEST, SNAPSHOT_DIFF, SNAPSHOTS = ".snapshot.json", ".snapshot.diff", ".snapshots"
"""Files of a copy of the code that was made for a job, and the folder below runs_dir with all copies."""
_GIT_TIMEOUT_S = 60
_DIFF = (
    "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false", "diff", "--no-ext-diff", "--no-color",
    "--binary",
)  # fmt: skip
"""A difference that `git apply` reads, whatever the user has configured."""


@dataclass(frozen=True)
class RecordedCode:
    """Code of an attempt, from its run folder.

    commit, dirty: None without git. diff: None if no difference is kept. snapshot: name of the job's copy.
    """

    version: CodeVersion
    commit: str | None = None
    dirty: bool | None = None
    snapshot: str | None = None
    diff: Path | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Hash of each plugin of the user's."""


def record_code(folder: Path, root: Path = ROOT) -> dict[str, Any]:
    """Store the code of this process in the run folder, once.

    Returns:
        Entry for run.json: commit, dirty, hash; for a job's copy of the code also its name.
    """
    version, facts = code_version(root), commit_of(root)
    place = folder / FOLDER / f"{version.hash}.json"
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        if diff := _difference(root, facts):
            with atomic_files.atomic_file(place.with_suffix(".diff")) as file:
                file.write(diff)
        atomic_files.write_json(place, {"version": 1, **facts, "files": version.files})
    return {**facts, "hash": version.hash}


def commit_of(root: Path) -> dict[str, Any]:
    """Git commit of the code, and whether the working tree differs from it.

    Both are None without git, or if the repository around the code does not track it, as in an environment
    inside a user's project.

    For a job's copy of the code: those of the checkout that it was copied from, and the name of the copy.
    """
    manifest = read_manifest(root)
    if manifest is not None:
        return {key: manifest.get(key) for key in ("commit", "dirty")} | {"snapshot": root.name}
    if git(root, "ls-files", "--error-unmatch", "--", COUNTED[0]) is None:
        return {"commit": None, "dirty": None}
    status = git(root, "status", "--porcelain", "--untracked-files=no")
    commit = git(root, "rev-parse", "HEAD")
    return {
        "commit": commit.decode().strip() if commit else None,
        "dirty": None if status is None else bool(status.strip()),
    }


def read_manifest(root: Path) -> dict[str, Any] | None:
    """Manifest of a job's copy of the code; None if `root` is no such copy."""
    found = read_file(root / SNAPSHOT_MANIFEST)
    return found.value if found.state == WHOLE else None


def code_of_attempt(folder: Path, attempt: Mapping[str, Any]) -> RecordedCode | None:
    """Code that an attempt of run.json computed with; None if it was made before code was recorded."""
    code = attempt.get("code") if isinstance(attempt, Mapping) else None
    found = code.get("hash") if isinstance(code, dict) else None
    if not isinstance(code, dict) or not isinstance(found, str):
        return None
    place = folder / FOLDER / f"{found}.json"
    kept = read_file(place).value or code
    files = {path: str(digest) for path, digest in mapping(kept.get("files")).items()}
    diff = place.with_suffix(".diff")
    snapshot = kept.get("snapshot")
    return RecordedCode(
        CodeVersion(found, files),
        kept.get("commit"),
        kept.get("dirty"),
        snapshot if isinstance(snapshot, str) else None,
        diff if diff.exists() else None,
        {path: str(one) for path, one in mapping(code.get("plugins")).items()},
    )


def changes_since(folder: Path, before: RecordedCode, root: Path = ROOT) -> list[Change]:
    """Files of `root` that differ from that code.

    Lines added and removed are counted if the earlier sources exist: in the job's copy, or in git with the
    difference that was kept.
    """
    now = code_version(root)
    if before.version.hash == now.hash:
        return []
    found = changed(before.version.files, now.files) if before.version.files else []
    with tempfile.TemporaryDirectory() as temporary:
        sources = _sources(folder, before, root, [one.path for one in found], Path(temporary))
        return [with_lines(one, sources, root) for one in found]


def with_lines(change: Change, sources: Path | None, root: Path) -> Change:
    """The change with the numbers of lines added and removed between two folders, if both have the file."""
    if sources is None:
        return change
    before = _lines(sources / change.path) if change.status != "added" else []
    now = _lines(root / change.path) if change.status != "removed" else []
    if before is None or now is None:
        return change
    added = removed = 0
    for kind, i, j, k, n in SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if kind != "equal":
            removed, added = removed + j - i, added + n - k
    return Change(change.path, change.status, added, removed)


def _lines(path: Path) -> list[str] | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None


def _sources(
    folder: Path, before: RecordedCode, root: Path, paths: list[str], temporary: Path
) -> Path | None:
    """A folder with the earlier versions of these files; None if they cannot be found."""
    if before.snapshot is not None:
        copy = folder.absolute().parent.parent / SNAPSHOTS / before.snapshot
        if copy.is_dir():
            return rooms_in(copy)
    manifest = read_manifest(root)
    repository = Path(str(manifest.get("root"))) if manifest else root
    if before.commit is None or git(repository, "cat-file", "-e", before.commit) is None:
        return None
    for path in paths:
        content = git(repository, "show", f"{before.commit}:./{path}")
        if content is not None:
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_bytes(content)
    if before.diff is None:
        return temporary if not before.dirty else None
    only = [f"--include={path}" for path in paths]
    environment = {"GIT_CEILING_DIRECTORIES": str(temporary.parent)}  # TMPDIR may be inside a repository
    applied = git(temporary, "apply", *only, str(before.diff.absolute()), environment=environment)
    return None if applied is None else temporary


def _difference(root: Path, facts: Mapping[str, Any]) -> bytes:
    """Python files of a checkout against its commit, new files that decide numbers among them."""
    if "snapshot" in facts:
        try:
            return (root / SNAPSHOT_DIFF).read_bytes()
        except OSError:
            return b""
    if facts["commit"] is None:
        return b""
    diff = (git(root, *_DIFF, "--relative", "HEAD", "--", "*.py") or b"") if facts["dirty"] else b""
    new = git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *COUNTED) or b""
    for name in filter(None, new.decode(errors="surrogateescape").split("\0")):
        if name.endswith(".py"):
            diff += git(root, *_DIFF, "--no-index", "--", "/dev/null", name, allowed=(0, 1)) or b""
    return diff


def git(
    root: Path, *arguments: str, allowed: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
) -> bytes | None:
    """Output of git; None: git is absent, or it refuses.

    Args:
        allowed: exit codes that are no refusal.
        environment: variables added to those of this process.
    """
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_GIT_TIMEOUT_S, env={**os.environ, **(environment or {})}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode in allowed else None
