"""What a child of `children` runs: its task, until that ends or the parent is gone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from data_loading.children import Channel, Mailbox, Task

_OOM_SCORE = 500
"""Of 1000: where memory is short, the kernel ends a child, and the parent lives to tell."""


def main(socket: int, work: int, *mailboxes: int) -> None:
    """Descriptors: the socket to the parent, the file in memory with the task, those for messages."""
    box = Mailbox(work)
    task = box.get()
    box.close()
    run(task, Channel(socket, [Mailbox(descriptor) for descriptor in mailboxes]))


def run(task: Task, channel: Channel) -> None:
    """Returns when the task has ended, or nobody waits for an answer any more."""
    offer_itself()
    with suppress(EOFError, ConnectionError):
        task.run(channel)


def offer_itself(file: Path = Path("/proc/self/oom_score_adj")) -> None:
    """Raising it needs no privilege; where it cannot be done, the kernel chooses as it does."""
    with suppress(OSError, ValueError):
        if int(file.read_text()) < _OOM_SCORE:
            file.write_text(str(_OOM_SCORE))
