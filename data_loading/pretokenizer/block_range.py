"""Which share of the inputs a task tokenizes: `--block-range 3/16`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_loading.set_files import SetFiles
from experiment_utils.errors import UserError

FLAG = "--block-range"
_NAME = re.compile(r"\.?(\d{5,})-of-(\d{5,})(\.partial|\.commit)?")


@dataclass(frozen=True)
class BlockRange:
    """Task number `task`, counted from 0, of `tasks` that make a set together."""

    task: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.task}/{self.tasks}"

    @property
    def name(self) -> str:
        """For messages."""
        return f"task {self.task} of {self.tasks}"

    @property
    def folder_name(self) -> str:
        return f"{self.task:05d}-of-{self.tasks:05d}"

    def files(self, output: Path) -> SetFiles:
        """What the task writes, for the set `output`."""
        return SetFiles(SetFiles(output).tasks / self.folder_name)

    def command(self, others: Sequence[str]) -> str:
        """What a user types for this task. others: the arguments that all tasks share."""
        return shlex.join(["python", "pretokenize_dataset.py", *others, FLAG, str(self)])


def parse_block_range(given: str) -> BlockRange:
    """Raises UserError."""
    found = re.fullmatch(r"(\d+)/(\d+)", given.strip())
    if found is None or not int(found[2]):
        raise UserError(
            f"{FLAG} {given}: expected TASK/TASKS, such as 3/16; the first task is 0",
            code="block-range-invalid",
        )
    result = BlockRange(int(found[1]), int(found[2]))
    if result.task >= result.tasks:
        raise UserError(
            f"{FLAG} {given}: tasks are counted from 0; expected 0/{result.tasks} to "
            f"{result.tasks - 1}/{result.tasks}",
            code="block-range-outside",
        )
    return result


def named_block_range(folder_name: str) -> BlockRange:
    """The task whose `folder_name` it is. Raises ValueError."""
    task, tasks = folder_name.split("-of-")
    return BlockRange(int(task), int(tasks))


def without_block_range(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command without --block-range and its value, however it is abbreviated."""
    return without_flags(arguments, (FLAG,))


def without_flags(
    arguments: Sequence[str], with_value: Sequence[str], alone: Sequence[str] = ()
) -> list[str]:
    """The arguments without these flags, however they are abbreviated, and without their values.

    arguments: that were parsed, so that an abbreviation stands for one flag only.
    """
    kept, is_value = [], False
    for argument in arguments:
        name, _, value = argument.partition("=")
        takes_value = len(name) > 2 and any(flag.startswith(name) for flag in with_value)
        is_flag = takes_value or (len(name) > 2 and any(flag.startswith(name) for flag in alone))
        if not is_flag and not is_value:
            kept.append(argument)
        is_value = takes_value and not value
    return kept


def found_tasks(folder: Path) -> dict[int, set[int]]:
    """For each number of tasks of which something lies in the folder: the tasks that are finished.

    What such a one has made may still have to be moved into place (`finish_commit`).
    """
    found: dict[int, set[int]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        name = _NAME.fullmatch(path.name)
        if name is not None:
            finished = found.setdefault(int(name[2]), set())
            if name[3] == ".commit" or (name[3] is None and SetFiles(path).manifest.exists()):
                finished.add(int(name[1]))
    return found
