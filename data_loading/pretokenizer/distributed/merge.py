"""The last step of a set that tasks make: one manifest over all of their shards, which are not copied."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_loading.dataset.splits import split_ranges
from data_loading.pretokenizer.distributed.task_plan import FLAG, SetTask, missing_tasks, read_plan
from data_loading.pretokenizer.job import Result
from data_loading.pretokenizer.journal import read_job
from data_loading.pretokenizer.manifest import relative_source, text_bytes_of
from data_loading.pretokenizer.resume import refuse_other_things
from data_loading.tokens.checksums import note_content
from data_loading.tokens.commit import finish_commit, staging
from data_loading.tokens.disk_errors import disk_errors
from data_loading.tokens.read_manifest import fingerprint_of, read_manifest
from data_loading.tokens.set_files import MANIFEST, SetFiles, documents_of
from data_loading.tokens.shard_layout import Layout
from data_loading.tokens.shards import Part, open_parts, parts_of
from data_loading.tokens.token_set import open_token_set
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError

Log = Callable[[str], None]
_SHOWN = 20


def merge_if_done(output: Path, log: Log = lambda line: None) -> Result | None:
    """Merge the set if all of its tasks are done; None if one is missing or another process merges.

    Raises:
        UserError: as `merge`.
    """
    plan = read_plan(SetFiles(output))
    if plan is not None and missing_tasks(SetFiles(output), plan["tasks"]):
        return None
    try:
        return merge(output, log=log)
    except lock_file.LockHeld as held:
        log(f"{output}: all tasks are done, and {held.holder} makes the set of them")
        return None


def merge(output: Path, *, skip_bad: int | None = None, log: Log = lambda line: None) -> Result:
    """Make the set `output` of what its tasks wrote.

    Ids, document starts, sources and fingerprint are those of one process; only the lengths of shards differ.
    Killed at any moment, it continues when called again. A set that was merged already is left alone.

    Args:
        skip_bad: Bad lines allowed in all inputs together; None: as the tasks were begun with.

    Raises:
        UserError: a task is not done or damaged, or another set has the name.
        LockHeld: another process writes the set.
    """
    started = time.monotonic()
    files = SetFiles(output)
    if not files.is_folder:
        raise UserError(
            f"merge {output}: tasks make a folder of shards; expected its name", code="output-not-folder"
        )
    with disk_errors(output, elsewhere=False), lock_file.lock(files.lock, f"token set {output}"):
        finish_commit(files)
        refuse_other_things(files)
        there = read_manifest(output)
        plan = read_plan(files)
        used = files.tasks.with_name(f"{files.tasks.name}.used")
        shutil.rmtree(used, ignore_errors=True)  # left by a process that was killed
        if plan is None and there is None:
            raise UserError(
                f"merge {output}: no task of it was begun ({files.tasks} is missing). Do its tasks with "
                f"{FLAG} 0/N to N-1/N and this --output",
                code="tasks-none",
            )
        if plan is None:
            return Result(output, there or {}, False, text_bytes_of(there or {}), 0.0)
        if there is not None and missing_tasks(files, plan["tasks"]):
            raise UserError(
                f"{output} exists already, and tasks that are not all done are left. Remove them: "
                f"{shlex.join(['rm', '-r', str(files.tasks)])}",
                code="output-differs",
            )
        manifest, parts = _merged(files, plan, skip_bad)
        if there is None:
            _link(files, manifest, parts)
            log(f"{output}: {len(parts):,} shards of {plan['tasks']:,} tasks")
        elif {**there, "engine": None} != {**manifest, "engine": None}:
            raise UserError(
                f"{output} exists and was not made of these tasks. Remove one of the two, and merge again: "
                f"{shlex.join(['rm', '-r', str(output)])}, or {shlex.join(['rm', '-r', str(files.tasks)])}",
                code="output-differs",
            )
        os.rename(files.tasks, used)
        atomic_files.point(f"{output.name}:tasks_used")
        shutil.rmtree(used)
    return Result(output, manifest, there is None, text_bytes_of(manifest), time.monotonic() - started)


def _merged(files: SetFiles, plan: dict[str, Any], skip_bad: int | None) -> tuple[dict[str, Any], list[Part]]:
    """(manifest of the set, its token files as its tasks wrote them). Raises UserError."""
    missing = missing_tasks(files, plan["tasks"])
    if missing:
        names = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        raise UserError(
            f"{files.tokens} cannot be merged yet: {len(missing):,} of {plan['tasks']:,} tasks are not done. "
            f"Type the command again with {FLAG} {names}",
            code="tasks-missing",
        )
    made, parts, tokens = list[dict[str, Any]](), list[Part](), 0
    for number in range(plan["tasks"]):
        task = SetTask(number, plan["tasks"])
        own = task.files(files.tokens)
        try:
            manifest = open_token_set(own.tokens).manifest
        except UserError as error:
            raise UserError(
                f"{files.tokens}: {task.name} is damaged: {error}. Do it again: "
                f"{shlex.join(['rm', '-r', str(own.tokens)])}, then the command with {FLAG} {task}",
                code="task-damaged",
            ) from error
        assert manifest is not None
        made.append(manifest)
        parts += [replace(part, first_token=tokens + part.first_token) for part in parts_of(own, manifest)]
        tokens += manifest["tokens"]
    sources = [relative_source(fact, files.tokens.parent) for one in made for fact in one["sources"]]
    _check_bad_lines(files, sources, plan["skip_bad"] if skip_bad is None else skip_bad)
    layout = Layout(plan["--tokens-per-shard"])
    shards = [
        {**shard, "name": layout.names(number)[0]}
        for number, shard in enumerate(shard for one in made for shard in one["shards"])
    ]
    engines = _engines([one["engine"] for one in made])
    merged = {
        **made[0],
        "engine": engines[0],
        "tokens": tokens,
        "documents": sum(one["documents"] for one in made),
        "sources": sources,
        "options": plan["options"],
        "fingerprint": fingerprint_of(sources, made[0]["tokenizer"]["content_hash"], plan["options"]),
        **_val(plan["--val-fraction"], tokens, parts),
        **({"engines": engines} if len(engines) > 1 else {}),
        "shards": shards,
        "generations": [{"sources": len(sources), "tokens": tokens, "shards": len(shards)}],
    }
    found: dict[str, Any] = json.loads(json.dumps(merged))
    return found, parts


def _engines(of_tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The engines of the tasks, each once, with the bytes on which all of its tasks compared it."""
    found: dict[str, dict[str, Any]] = {}
    for engine in of_tasks:
        key = json.dumps({**engine, "compared_bytes": None}, sort_keys=True)
        before = found.get(key, {}).get("compared_bytes", 0)
        compared = {name: before + engine[name] for name in ("compared_bytes",) if name in engine}
        found[key] = {**engine, **compared}
    return list(found.values())


def _check_bad_lines(files: SetFiles, sources: Sequence[dict[str, Any]], allowed: int) -> None:
    bad = sum(source.get("skipped", 0) for source in sources)
    if bad > allowed:
        raise UserError(
            f"{files.tokens}: the tasks together left out {bad:,} lines that are no documents, and "
            f"--skip-bad allows {allowed:,}. Look at them, or: merge {files.tokens} --skip-bad {bad}",
            code="too-many-bad-lines",
        )


def _val(fraction: float | None, tokens: int, parts: Sequence[Part]) -> dict[str, Any]:
    if fraction is None:
        return {}
    _, val = split_ranges(tokens, open_parts(parts)[1], fraction)
    return {"val": {"fraction": fraction, "ranges": [[val.start, val.stop]]}}


def _link(files: SetFiles, manifest: dict[str, Any], parts: Sequence[Part]) -> None:
    """Put the set in its place. The tasks keep their names of the files until that is done."""
    if read_job(files.partial) is not None:
        raise UserError(
            f"{files.partial} holds an unfinished tokenization to the same place, without {FLAG}. Finish it, "
            f"or remove it: {shlex.join(['rm', '-r', str(files.partial)])}",
            code="unfinished-of-other",
        )
    shutil.rmtree(files.partial, ignore_errors=True)
    with staging(files) as folder:
        for part, shard in zip(parts, manifest["shards"], strict=True):
            target = folder / shard["name"]
            os.link(part.tokens_path, target)
            os.link(part.documents_path, documents_of(target))
            atomic_files.point(f"{files.tokens.name}:linked_{target.name}")
        shutil.copytree(parts[0].tokens_path.with_name("tokenizer"), folder / "tokenizer")
        atomic_files.write_json(folder / MANIFEST, manifest)
    note_content(files, parts_of(files, manifest))
