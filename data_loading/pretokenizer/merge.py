"""What tasks have made becomes one set: a manifest over their shards, which get new names and no copies."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.content import note_content
from data_loading.content_hash import hash_of_pieces
from data_loading.cut_documents import cut_at
from data_loading.layout import Layout
from data_loading.pretokenizer.block_range import FLAG, BlockRange, found_tasks
from data_loading.pretokenizer.document_ends import recorded_ends
from data_loading.pretokenizer.existing import refuse_other_things
from data_loading.pretokenizer.job import Result
from data_loading.pretokenizer.journal import read_job
from data_loading.pretokenizer.manifest import Made, make_manifest, text_bytes_of, with_shares
from data_loading.pretokenizer.task_manifest import difference_of_tasks, read_task
from data_loading.pretokenizer.writer import Written
from data_loading.set_files import MANIFEST, SetFiles, disk_errors, documents_of, finish_commit, staging
from data_loading.shards import Part, map_part, open_parts, parts_of
from data_loading.token_set import read_manifest
from data_loading.tokenizer import Tokenizer
from data_loading.tokenizer_files import read_tokenizer
from data_loading.values import Values
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError

Log = Callable[[str], None]
_SHOWN = 20
_ADDED = ("documents", "skipped", "nulls")
"""Facts of a source that are counted part by part."""


@dataclass(frozen=True)
class _Merged(Made):
    """parts: of all tasks, in order, where the tasks have put them. told: what each manifest says of them."""

    parts: tuple[Part, ...] = ()
    told: tuple[dict[str, Any], ...] = ()

    def starts(self) -> Values:
        return open_parts(self.parts, _map_part)[1]

    def shards(self) -> list[dict[str, Any]]:
        return [{**shard, "name": self.layout.names(number)[0]} for number, shard in enumerate(self.told)]


def merge(
    output: Path, *, overwrite: bool = False, skip_bad: int | None = None, log: Log = lambda line: None
) -> Result:
    """Make the set `output` of what its tasks have written beside it.

    The set is the one that a single job would make of the same inputs, except that the last shard of
    each task may be shorter. Killed at any moment, it goes on when it is called again. A set that was merged
    already is left alone. skip_bad: bad lines allowed in all; None: as many as the tasks were told.

    Raises:
        UserError: a task is missing, not done, damaged or not like the others, or another set has the name.
        LockHeld: another process writes the set, or does one of the tasks.
    """
    started = time.monotonic()
    files = SetFiles(output)
    if not files.is_folder:
        raise UserError(
            f"merge {output}: tasks make a set of shards, which is a folder; expected its name",
            code="output-not-folder",
        )
    with (
        disk_errors(output, elsewhere=False),
        lock_file.lock(files.lock, f"token set {output}"),
        ExitStack() as locks,
    ):
        finish_commit(files)
        shutil.rmtree(_used(files), ignore_errors=True)
        tasks = _tasks(files, locks)
        manifest = _merged_already(files, tasks, overwrite=overwrite)
        made = manifest is None
        if manifest is None:
            merged = _merged(files, tasks, skip_bad)
            manifest = _put_together(files, merged, tasks[0]["val"]["fraction"], tasks, overwrite=overwrite)
            note_content(files, parts_of(files, manifest))
            log(f"{output}: {len(merged.parts):,} shards of {len(tasks):,} tasks")
        if tasks:
            os.rename(files.tasks, _used(files))
            atomic_files.point(f"{output.name}:tasks_used")
            shutil.rmtree(_used(files))
    return Result(output, manifest, made, text_bytes_of(manifest), time.monotonic() - started)


def _used(files: SetFiles) -> Path:
    """The name of the tasks' folder once the set is made."""
    return files.tasks.with_name(f"{files.tasks.name}.used")


def _tasks(files: SetFiles, locks: ExitStack) -> list[dict[str, Any]]:
    """The manifests of all tasks, in order, which are locked from now on; empty where there are none.

    Raises UserError where one is missing or not like the others.
    """
    found = found_tasks(files.tasks)
    if not found:
        return []
    if len(found) > 1:
        groups = ", ".join(f"{len(done):,} of {tasks:,}" for tasks, done in sorted(found.items()))
        raise UserError(
            f"{files.tasks} holds tasks of several divisions: {groups} tasks are done. Remove those that you "
            f"do not want, such as: rm -r {files.tasks}/{{,.}}*-of-{min(found):05d}*",
            code="tasks-several-divisions",
        )
    ((tasks, done),) = found.items()
    for task in sorted(done):
        block_range = BlockRange(task, tasks)
        own = block_range.files(files.tokens)
        locks.enter_context(lock_file.lock(own.lock, f"{block_range.name} of token set {files.tokens}"))
        finish_commit(own)
    there, difference = list[dict[str, Any]](), None
    for task in sorted(done):
        manifest = read_task(BlockRange(task, tasks).files(files.tokens))
        if manifest is None:
            raise UserError(
                f"{files.tasks} lost a task while they were merged. Do the task again, then merge",
                code="changed-while-read",
            )
        if there:
            difference = difference or difference_of_tasks(there[0], manifest)
            del manifest["inputs"]  # as long as there are inputs, and the same for all tasks
        there.append(manifest)
    missing = [BlockRange(task, tasks) for task in range(tasks) if task not in done]
    if missing:
        raise _told_missing(files, missing, there)
    if difference is not None:
        raise UserError(
            f"{files.tokens} cannot be merged: {difference}. Tasks of one set are made alike: do those again "
            "that are not what you want, with --overwrite",
            code="tasks-differ",
        )
    return there


def _told_missing(
    files: SetFiles, missing: Sequence[BlockRange], done: Sequence[dict[str, Any]]
) -> UserError:
    others = done[0]["command"] if done else ["..."]
    lines = []
    for task in missing[:_SHOWN]:
        own = task.files(files.tokens)
        holder = lock_file.read_holder(own.lock, task.name) if own.lock.exists() else None
        state = "unfinished" if own.partial.exists() else "not begun"
        if holder is not None and not holder.is_gone():
            state = f"in work, by {holder}"
        lines.append(f"{task.command(others)}   ({state})")
    more = f"\n  ... and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    count = "1 task is" if len(missing) == 1 else f"{len(missing):,} tasks are"
    return UserError(
        f"{files.tokens} cannot be merged yet: {count} missing of {missing[0].tasks:,}. Do them first:\n  "
        + "\n  ".join(lines)
        + more,
        code="tasks-missing",
    )


def _merged_already(
    files: SetFiles, tasks: Sequence[dict[str, Any]], *, overwrite: bool
) -> dict[str, Any] | None:
    """The manifest of the set, where it was made of these tasks; or where there are none.

    Raises UserError where there is nothing at all, or another set.
    """
    refuse_other_things(files)
    manifest = read_manifest(files.tokens) if files.exists else None
    if not tasks:
        if manifest is None:
            raise UserError(
                f"merge {files.tokens}: there are no tasks beside it ({files.tasks}). Make them with "
                f"{FLAG} 0/N to N-1/N, with this --output",
                code="tasks-none",
            )
        return manifest
    if manifest is None:
        return None
    there = [(shard["blocks"], shard["documents_checksum"]) for shard in manifest["shards"]]
    here = [(shard["blocks"], shard["documents_checksum"]) for task in tasks for shard in task["shards"]]
    facts = manifest["tokenizer"], manifest["options"], manifest.get("val", {}).get("fraction")
    if there == here and facts == (tasks[0]["tokenizer"], tasks[0]["options"], tasks[0]["val"]["fraction"]):
        return manifest
    if not overwrite:
        raise UserError(
            f"{files.tokens} exists, and was not made of these tasks. Replace it with merge {files.tokens} "
            "--overwrite",
            code="output-differs",
        )
    return None


def _merged(files: SetFiles, tasks: Sequence[dict[str, Any]], skip_bad: int | None) -> _Merged:
    """Raises UserError where there is no text, or more bad lines than allowed, or a shard is damaged."""
    first = tasks[0]
    tokenizer = _tokenizer(files, first)
    parts, tokens = list[Part](), 0
    for task in tasks:
        own = BlockRange(task["task"], task["tasks"]).files(files.tokens)
        here = parts_of(own, task)
        if cut_at(task, own.tokenizer, open_parts(here, map_part)[1] if here else ()) is not None:
            raise UserError(
                f"{files.tokens} cannot be merged: {FLAG} {task['task']}/{task['tasks']} was done by an "
                "earlier version, which obeyed the truncation in the tokenizer.json. Do the tasks again with "
                "--overwrite",
                code="documents-cut",
            )
        parts += [replace(part, first_token=part.first_token + tokens) for part in here]
        tokens += task["tokens"]
    if not parts:
        raise UserError(f"{files.tokens} cannot be merged: no task has found any text", code="no-text")
    _, starts = open_parts(parts, _map_part)
    sources = _sources(files, tasks)
    bad = sum(source.get("skipped", 0) for source in sources)
    allowed = max(task["skip_bad"] for task in tasks) if skip_bad is None else skip_bad
    if bad > allowed:
        raise UserError(
            f"{files.tokens}: the tasks together left out {bad:,} lines that are no documents, and "
            f"--skip-bad allows {allowed:,}. Look at them, or: merge {files.tokens} --skip-bad {bad}",
            code="too-many-bad-lines",
        )
    return _Merged(
        folder=files.partial,
        layout=Layout(first["shard_tokens"]),
        dtype=np.dtype(first["dtype"]),
        written=Written(tokens, len(starts)),
        checksums=[],
        sources=with_shares(sources, starts, tokens),
        options=first["options"],
        tokenizer=tokenizer,
        engine={},
        parts=tuple(parts),
        told=tuple(shard for task in tasks for shard in task["shards"]),
    )


def _tokenizer(files: SetFiles, task: dict[str, Any]) -> Tokenizer:
    folder = BlockRange(task["task"], task["tasks"]).files(files.tokens).tokenizer
    tokenizer = read_tokenizer(folder, task["tokenizer"]["name"])
    if tokenizer.content_hash != task["tokenizer"]["content_hash"]:
        raise UserError(
            f"{folder} is not the tokenizer that its task was made with: do it again with --overwrite",
            code="task-tokenizer-differs",
        )
    return recorded_ends(tokenizer, task["options"])


def _sources(files: SetFiles, tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of all inputs, those of which several tasks have read a part put together."""
    found: list[list[dict[str, Any]]] = [[] for _ in tasks[0]["inputs"]]
    for task in tasks:
        for fact in task["sources"]:
            found[fact["file"]].append({name: value for name, value in fact.items() if name != "file"})
    return [_source(files, facts) for facts in found]


def _source(files: SetFiles, facts: list[dict[str, Any]]) -> dict[str, Any]:
    if any(
        (fact["bytes"], fact.get("mtime_ns")) != (facts[0]["bytes"], facts[0].get("mtime_ns"))
        for fact in facts
    ):
        raise UserError(
            f"{files.tokens} cannot be merged: {facts[0]['path']} was changed between its tasks. Do the ones "
            "that read it again, with --overwrite",
            code="input-changed",
        )
    source = {name: value for name, value in facts[0].items() if name != "pieces"}
    if "pieces" in facts[0]:
        source["content_hash"] = hash_of_pieces([digest for fact in facts for digest in fact["pieces"]])
    return {**source, **{name: sum(fact[name] for fact in facts) for name in _ADDED if name in source}}


def _engines(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The engine of the first task, and those of all where they are not the same."""
    distinct = list[dict[str, Any]]()
    for task in tasks:
        if task["tokens"] and task["engine"] not in distinct:
            distinct.append(task["engine"])
    return {"engine": distinct[0], **({"engines": distinct} if len(distinct) > 1 else {})}


def _put_together(
    files: SetFiles,
    merged: _Merged,
    val_fraction: float | None,
    tasks: Sequence[dict[str, Any]],
    *,
    overwrite: bool,
) -> dict[str, Any]:
    """Put the set in its place. The tasks keep their names of the files until that is done."""
    if read_job(files.partial) is not None and not overwrite:
        raise UserError(
            f"{files.partial} holds an unfinished tokenization to the same place, without {FLAG}. Merge "
            f"anyway, and lose it: merge {files.tokens} --overwrite",
            code="unfinished-of-other",
        )
    shutil.rmtree(files.partial, ignore_errors=True)
    manifest = {**make_manifest(merged, files, val_fraction), **_engines(tasks)}
    with staging(files) as folder:
        for part, shard in zip(merged.parts, manifest["shards"], strict=True):
            target = folder / shard["name"]
            os.link(part.tokens_path, target)
            os.link(part.documents_path, documents_of(target))
            atomic_files.point(f"{files.tokens.name}:linked_{target.name}")
        merged.tokenizer.save(folder / "tokenizer")
        atomic_files.write_json(folder / MANIFEST, manifest)
    return manifest


def _map_part(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Raises UserError where one of the two files is not as its task's manifest says."""
    tokens, starts = map_part(part)
    for values, said in ((tokens, part.tokens), (starts, part.documents)):
        if len(values) != said:
            raise UserError(
                f"{part.tokens_path} or what stands beside it was changed: {len(values):,} values where its "
                f"task wrote {said:,}. Do the task again with --overwrite",
                code="task-changed",
            )
    return tokens, starts
