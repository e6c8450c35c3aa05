"""Blocks through worker processes and back in their order, a bounded number of them at a time."""

from __future__ import annotations

import logging
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from data_loading.children import (
    Channel,
    Child,
    WorkerDied,
    cores,
    how_it_died,
    oom_kills,
    with_news,
)
from data_loading.pretokenizer.blocks import Block, BlockEncoder, EncodedBlock
from data_loading.pretokenizer.engine import Unsupported
from experiment_utils.errors import UserError

__all__ = ["Work", "WorkerDied", "cores", "encode_in_order"]

_IN_WORKER = 2
"""Blocks given to a worker at a time: it works on one while the other lies ready."""
_AHEAD = 3
"""Blocks per worker that may be under way or waiting for an earlier one."""
_LOOK_S = 0.25
"""How often the memory of the workers is looked at, so that a killed one can be described."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What a worker needs to know. definition: of the engine."""

    engine: str
    definition: str
    eot_id: int | None
    vocab_size: int
    errors: str
    bos_id: int | None = None

    def encoder(self) -> BlockEncoder:
        from data_loading.pretokenizer.engines import ENGINES

        engine = ENGINES[self.engine](self.definition)
        return BlockEncoder(engine, self.eot_id, self.vocab_size, self.errors, self.bos_id)

    def run(self, channel: Channel) -> None:
        """In the worker: answer blocks, until the parent is gone or the engine is worn."""
        encoder = self.encoder()
        try:
            encoder.engine.load()
        except Unsupported as why:
            while True:  # a block may be given before the first answer is read
                box, _ = channel.take()
                channel.answer(box, (why, False))
        worn = False
        while not worn:
            box, block = channel.take()
            result: EncodedBlock | Exception
            try:
                result = encoder.encode(block)
            except UserError as error:
                result = error
            except Exception:
                result = RuntimeError(f"in a worker:\n{traceback.format_exc()}")
            worn = encoder.engine.worn
            channel.answer(box, (result, worn))


def encode_in_order(
    blocks: Iterator[Block], work: Work, workers: int, log: Callable[[str], None] = _log.warning
) -> Iterator[EncodedBlock]:
    """Encode the blocks with `workers` processes and yield them in order.

    A worker that dies, for want of memory most often, costs no block: the others finish theirs and
    end, the block that the dead one worked on is encoded by a fresh process alone, and a team goes on
    that is smaller by one when the death was a kill. `log` gets a line.

    A generator: closing it, or an exception, ends the processes.

    Raises:
        UserError: a block holds bytes that are not UTF-8; the first such block in order.
        Unsupported: the engine cannot encode with this tokenizer.
        WorkerDied: a block's worker died again when it was alone.
    """
    pool = _Pool(work, workers, log)
    try:
        yield from pool.results(blocks)
    finally:
        pool.end()


@dataclass(eq=False)
class _Worker:
    """blocks: given and not answered yet, in the order in which it works on them."""

    child: Child
    blocks: list[Block] = field(default_factory=list)

    def give(self, block: Block) -> None:
        self.blocks.append(block)
        self.child.give(block)


class _Pool:
    def __init__(self, work: Work, size: int, log: Callable[[str], None]) -> None:
        self._work, self._size, self._log = work, size, log
        self._kills = oom_kills()
        self._order: deque[int] = deque()  # indices of the blocks given out and not yet yielded
        self._again: deque[Block] = deque()  # of those, what a dead worker had not begun
        self._ready: dict[int, EncodedBlock | Exception] = {}
        self._team: list[_Worker] = []
        self._looked = 0.0

    def end(self) -> None:
        while self._team:
            self._team.pop().child.end()

    def results(self, blocks: Iterator[Block]) -> Iterator[EncodedBlock]:
        self._team = [self._start() for _ in range(self._size)]
        while True:
            exhausted = self._feed(blocks)
            if self._order and self._order[0] in self._ready:
                self._collect(0)
                result = self._ready.pop(self._order.popleft())
                if isinstance(result, Exception):
                    raise result
                yield result
            elif self._order:
                self._collect(_LOOK_S)
            elif exhausted:
                return

    def _start(self) -> _Worker:
        return _Worker(Child(self._work, _IN_WORKER))

    def _feed(self, blocks: Iterator[Block]) -> bool:
        """Give out what there is room for; True when there is no block any more."""
        while self._again or len(self._order) < _AHEAD * self._size:
            worker = min(self._team, key=lambda candidate: len(candidate.blocks))
            if len(worker.blocks) >= _IN_WORKER:
                return False
            if self._again:
                worker.give(self._again.popleft())
                continue
            block = next(blocks, None)
            if block is None:
                return True
            self._order.append(block.index)
            worker.give(block)
        return False

    def _collect(self, timeout_s: float) -> None:
        """Take in the answers that are there, or that come within the time."""
        dead = self._take_answers(timeout_s)
        if dead:
            self._recover(dead)

    def _take_answers(self, timeout_s: float) -> list[_Worker]:
        """Returns the workers that turned out to be dead; they are no longer in the team."""
        dead = []
        worker_of = {worker.child: worker for worker in self._team}
        for child in with_news(list(worker_of), timeout_s):
            worker = worker_of[child]
            try:
                result, worn = child.answer()
            except (EOFError, OSError):
                self._team.remove(worker)
                dead.append(worker)
                continue
            self._ready[worker.blocks.pop(0).index] = result
            if worn:
                self._replace(worker)
        self._look()
        return dead

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            for worker in self._team:
                worker.child.note_memory()

    def _replace(self, worker: _Worker) -> None:
        """A fresh process takes over from one that ends because its caches have grown too large."""
        self._team.remove(worker)
        worker.child.end()
        fresh = self._start()
        self._team.append(fresh)
        for block in worker.blocks:
            fresh.give(block)

    def _recover(self, dead: list[_Worker]) -> None:
        """Encode what the dead were working on, each block alone, and go on with a new team."""
        while any(worker.blocks for worker in self._team):
            dead += self._take_answers(_LOOK_S)
        self.end()
        dead.sort(key=lambda worker: worker.blocks[0].index if worker.blocks else -1)  # not as they died
        hows = [self._bury(worker) for worker in dead]
        for worker, how in zip(dead, hows, strict=True):
            for block in worker.blocks[:1]:
                self._ready[block.index] = self._alone(block, how)
            self._again.extend(worker.blocks[1:])
        self._kills = oom_kills()
        self._team = [self._start() for _ in range(self._size)]

    def _bury(self, worker: _Worker) -> str:
        how = how_it_died(worker.child, self._kills)
        if worker.child.exit_status() == -signal.SIGKILL:
            self._size = max(1, self._size - 1)
        worker.child.end()
        self._log(
            f"WARNING: a tokenizing worker died: {how}. Its block is encoded again, alone; then it goes on "
            f"with {self._size} worker" + ("s" if self._size > 1 else "")
        )
        return how

    def _alone(self, block: Block, before: str) -> EncodedBlock | Exception:
        worker = self._start()
        self._team = [worker]
        worker.give(block)
        kills = oom_kills()
        while worker.blocks:
            if self._take_answers(_LOOK_S):
                how = how_it_died(worker.child, kills)
                worker.child.end()
                raise _died_twice(block, before, how)
        self.end()
        return self._ready.pop(block.index)


def _died_twice(block: Block, before: str, how: str) -> WorkerDied:
    first = block.chunks[0]
    size = sum(len(chunk.data) for chunk in block.chunks)
    return WorkerDied(
        f"{first.source}: the {size:,} bytes from byte {first.offset:,} on cannot be encoded: their worker "
        f"died twice. First: {before}. Then, alone: {how}. Where it is memory, give the job more, or ask "
        "for fewer processes (--workers 1). Older outputs are untouched"
    )
