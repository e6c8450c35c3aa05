"""Worker processes that read batches: forks of this process, each reads every n-th batch."""

from __future__ import annotations

import signal
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from data_loading.children import Channel, Child, WorkerDied, how_it_died, oom_kills, with_news
from data_loading.spans import Span, read_spans
from data_loading.storages import packed, unpacked
from data_loading.waiting import Wait
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import torch

    from data_loading.positioned import Positioned

    Batch = dict[str, torch.Tensor]

_AHEAD = 3
"""Batches that a worker has under way or lying ready."""
_LOOK_S = 0.25
"""How often the memory of a worker that is waited for is looked at, so that a killed one can be described."""


class ReadSpans:
    """What a worker does: reads the spans that it is given, one batch each."""

    def __init__(self, dataset: Positioned) -> None:
        self._dataset = dataset

    def run(self, channel: Channel) -> None:
        """Until the parent is gone."""
        import torch

        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
        while True:
            box, spans = channel.take()
            try:
                answer: object = packed(read_spans(self._dataset, spans))
            except UserError as error:
                answer = error
            except Exception:
                answer = RuntimeError(f"in a worker process:\n{traceback.format_exc()}")
            channel.answer(box, answer)


def read_with_workers(dataset: Positioned, batches: Iterable[list[Span]], workers: int) -> Iterator[Batch]:
    """Batches of these spans in their order, read by so many processes.

    A generator: closing it, or an exception, ends the processes.

    Raises:
        WorkerDied: says which, how, and the likely cause.
        UserError: what reading a batch raised, such as a token file that has changed.
    """
    kills = oom_kills()
    team: list[Child] = []
    try:
        for _ in range(workers):
            team.append(Child(ReadSpans(dataset), _AHEAD, forked=True))
        under_way: deque[tuple[Child, list[Span]]] = deque()
        for number, spans in enumerate(batches):
            if len(under_way) == workers * _AHEAD:
                yield _next(under_way, kills)
            child = team[number % workers]
            child.give(spans)
            under_way.append((child, spans))
        while under_way:
            yield _next(under_way, kills)
    finally:
        for child in team:
            child.end()


def _next(under_way: deque[tuple[Child, list[Span]]], kills: int | None) -> Batch:
    child, spans = under_way.popleft()
    wait = Wait()
    while not with_news([child], _LOOK_S):
        child.note_memory()
        wait.check()
    try:
        answer = child.answer()
    except (EOFError, OSError):
        raise WorkerDied(
            f"a worker process of the loader died: {how_it_died(child, kills)}. It was to read "
            f"{' and '.join(map(_told, spans)) or 'nothing'}. {_advice(child)}"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return unpacked(answer)


def _advice(child: Child) -> str:
    if child.exit_status() == -signal.SIGBUS:
        return "See whether the token files are whole: pretokenize_dataset.py verify"
    return "Read without workers (num_workers=0), which is faster on few cores, or give the job more memory"


def _told(span: Span) -> str:
    return f"the windows {span.first:,} to {span.last:,} of epoch {span.epoch}"
