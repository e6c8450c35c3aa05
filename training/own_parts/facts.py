"""Facts of the user's own parts that a plan needs, found by running them once. No torch here.

Entries ask a child process, so that a plan imports no torch, and what the user's code does stays outside.
Answers are kept in the user's cache by content: a run finds those of its plan.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf import Config, parts_table
from conf.composing.check import to_plain
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.plugin_files import files_of
from conf.own_parts.use import use_plugins
from conf.parts_table import Part
from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.modules import IMPORT_ROOT, module_name
from experiment_utils.run_folder import read_file
from training.own_parts.part_facts import Facts

_VERSION = 2
"""Version of the way in which facts are found."""
_KEYS = ("model", "arch", "own", "optimizer", "schedule", "dataset", "tokenizer", "training")
_FREE = ("lr", "weight_decay", "beta1", "beta2")
_KNOWN: dict[str, Facts] = {}
_IN_THIS_PROCESS: list[bool] = []
_CHILD: list[subprocess.Popen[str]] = []


def try_in_this_process() -> None:
    """Try parts in this process from now on: it trains with them."""
    _IN_THIS_PROCESS.append(True)


def facts_of(config: Config, vocab_size: int) -> Facts | None:
    """Facts of the user's own parts in a resolved configuration; None if it has none.

    Raises:
        UserError: a plugin or part cannot be used.
    """
    if not config.plugins:
        return None
    use_plugins(config.plugins, around=False)
    if not parts_in_use(config):
        return None
    key = _key(config, vocab_size)
    if key not in _KNOWN:
        place = _cache_folder() / f"{key}.json"
        kept = read_file(place).value if place is not None else None
        if not isinstance(kept, dict) or {*kept} != {one.name for one in dataclasses.fields(Facts)}:
            kept = _ask({"config": to_plain(config), "vocab_size": vocab_size})
            with suppress(OSError, RuntimeError):
                place.parent.mkdir(parents=True, exist_ok=True)
                atomic_files.write_json(place, kept)
        _KNOWN[key] = Facts(**kept)
    return _KNOWN[key]


def make_own_data(config: Config, part: Part, place: Path) -> None:
    """Write the file of a dataset or tokenizer of the user's, in the process that tries parts out.

    Raises:
        UserError: the user's code fails; names FILE:LINE.
    """
    _ask({"config": to_plain(config), "part": part.name, "place": str(place)})


def _key(config: Config, vocab_size: int) -> str:
    plain = to_plain(config, _KEYS)
    training = {name: plain["training"][name] for name in ("seq_len", "step", "callbacks", "parallel")}
    optimizer = {name: value for name, value in plain["optimizer"].items() if name not in _FREE}
    sources = [
        hashlib.sha256(file.read_bytes()).hexdigest()
        for one in config.plugins
        for file in files_of(parts_table.place_of(one))
    ]
    described = [
        _VERSION,
        plain | {"training": training, "optimizer": optimizer},
        config.logging.metrics,
        vocab_size,
    ]
    text = json.dumps([*described, sources, config.plugins], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "highwater" / "own_parts"


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    """The answer of the child, which is started for the first question and ends with this process."""
    if _IN_THIS_PROCESS:  # a training process, which has loaded the plugins
        from training.own_parts.try_parts import answer

        found = answer(question)
    else:
        found = _ask_child(question)
    if "problems" in found:
        raise UserError(*(Problem(*one) for one in found["problems"]))
    return found


def _ask_child(question: dict[str, Any]) -> dict[str, Any]:
    plugins = question["config"]["plugins"]
    question = question | {"places": {one: parts_table.place_of(one) for one in plugins}}
    if not _CHILD:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(IMPORT_ROOT), *_python_path()])}
        command = [sys.executable, "-P", "-m", module_name("training.own_parts.try_parts")]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        _CHILD.append(child)
        atexit.register(end_child)
    child = _CHILD[0]
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(question, default=str) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        return dict(json.loads(line))
    except (OSError, ValueError):
        _CHILD.clear()
        code = child.wait()
        what = f"the process that tries them out ended with status {code}"
        raise UserError(Problem("plugins", what, "trying-died")) from None


def _python_path() -> list[str]:
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def end_child() -> None:
    """End the process that tries parts out: it has torch in memory, which runs on this machine need."""
    while _CHILD:
        child = _CHILD.pop()
        child.kill()  # it holds nothing, and may still be loading torch
        child.wait()
