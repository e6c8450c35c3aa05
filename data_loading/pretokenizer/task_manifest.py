"""What a task tells of its work, for the merge that makes one set of all of them."""

from __future__ import annotations

import json
import time
from typing import Any

from data_loading.pretokenizer.block_range import BlockRange
from data_loading.pretokenizer.manifest import WRITER_VERSION, Made, facts_of_tokenizer
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.share import Share
from data_loading.pretokenizer.writer import CHECKSUM_BYTES
from data_loading.set_files import SetFiles
from experiment_utils.errors import UserError

FORMAT, FORMAT_VERSION = "highwater task of a token set", 1


def make_task_manifest(made: Made, share: Share, options: Options, job: str) -> dict[str, Any]:
    """Of the part of a set that a task has made.

    Its sources are the files that it read, with their numbers among all inputs; `documents` of a source
    are those that end in it, `documents` of the whole those that begin.
    """
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "writer_version": WRITER_VERSION,
        "task": share.block_range.task,
        "tasks": share.block_range.tasks,
        "job": job,
        "command": list(options.command) or share.whole.arguments,
        "tokenizer": facts_of_tokenizer(made.tokenizer),
        "dtype": made.dtype.str,
        "tokens": made.written.tokens,
        "documents": made.written.documents,
        "inputs": share.whole.state(),
        "sources": made.sources,
        "skip_bad": share.tolerance.allowed,
        "options": made.options,
        "val": {"fraction": options.val_fraction},
        "engine": made.engine,
        "checksums": {"algorithm": "sha256", "bytes": CHECKSUM_BYTES},
        "shard_tokens": made.layout.shard_tokens,
        "shards": [shard for shard in made.shards() if shard["tokens"]],
        "earlier": [],
    }


def read_task(files: SetFiles) -> dict[str, Any] | None:
    """The manifest of a finished task; None where there is none.

    Raises:
        UserError: it is damaged, or of a version that this program does not know.
    """
    again = "Do the task again with --overwrite"
    try:
        found = json.loads(files.manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(
            f"{files.manifest} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    except ValueError as error:
        raise UserError(
            f"{files.manifest} is damaged ({error}). {again}", code="task-manifest-damaged"
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UserError(
            f"{files.manifest} is not of a task of a token set. {again}", code="task-manifest-damaged"
        )
    if found.get("version") != FORMAT_VERSION:
        raise UserError(
            f"{files.manifest} is of version {found.get('version')}, and this program reads version "
            f"{FORMAT_VERSION}. {again}",
            code="task-manifest-version",
        )
    return found


def difference_of_tasks(one: dict[str, Any], other: dict[str, Any]) -> str | None:
    """How two tasks were not made alike; None when they were."""
    names = [BlockRange(found["task"], found["tasks"]).name for found in (one, other)]
    facts = {
        "tokenizer": [
            f"{t['name']} ({t['content_hash'][:12]})" for t in (one["tokenizer"], other["tokenizer"])
        ],
        "version of this program's output": [one["writer_version"], other["writer_version"]],
        "--tokens-per-shard": [one["shard_tokens"], other["shard_tokens"]],
        "--val-fraction": [one["val"]["fraction"], other["val"]["fraction"]],
        **{
            name: [one["options"].get(name), other["options"].get(name)]
            for name in {**one["options"], **other["options"]}
        },
    }
    for name, (first, second) in facts.items():
        if first != second:
            return f"{names[0]} was made with {name} {first}, {names[1]} with {second}"
    changed = other_inputs(one["inputs"], other["inputs"], ("the one read", "the other"))
    return changed and f"{names[0]} and {names[1]} are not of the same inputs: {changed}"


def other_inputs(
    there: list[Any], here: list[Any], words: tuple[str, str] = ("it was made from", "and now there is")
) -> str | None:
    """How two states of inputs differ. there: of what was made. words: that stand before the two."""
    there, here = json.loads(json.dumps([there, here]))
    for one, other in zip(there, here, strict=False):
        if one != other:
            return f"{words[0]} {_told(one)}, {words[1]} {_told(other)}"
    if len(there) != len(here):
        return f"{words[0]} {len(there):,} inputs, {words[1]} {len(here):,}"
    return None


def _told(state: Any) -> str:
    if isinstance(state, list) and len(state) == 3 and isinstance(state[1], int):
        seconds, rest = divmod(state[2], 10**9)
        changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        return f"{state[0]} ({state[1]:,} bytes, changed {changed}.{rest // 10**6:03d})"
    return " ".join(map(str, state)) if isinstance(state, list) else str(state)
