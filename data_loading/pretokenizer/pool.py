"""Blocks through worker processes and back in their order, a bounded number of them at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from conf import UserError
from data_loading.pretokenizer.blocks import Block, BlockEncoder, EncodedBlock

_ROOT = Path(__file__).resolve().parents[2]
_IN_WORKER = 2
"""Blocks given to a worker at a time: it works on one while the other lies ready."""
_AHEAD = 3
"""Blocks per worker that may be under way or waiting for an earlier one."""

_ONE_THREAD = {
    "FASTOKENS_BPE_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class WorkerDied(RuntimeError):
    """A worker process ended without saying why."""


@dataclass(frozen=True)
class Work:
    """What a worker needs to know. definition: text of the tokenizer.json."""

    engine: str
    definition: str
    eot_id: int | None
    vocab_size: int
    errors: str

    def encoder(self) -> BlockEncoder:
        from data_loading.pretokenizer.engines import ENGINES

        engine = ENGINES[self.engine](self.definition)
        return BlockEncoder(engine, self.eot_id, self.vocab_size, self.errors)


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    blocks: list[int] = field(default_factory=list)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def encode_in_order(blocks: Iterator[Block], work: Work, workers: int) -> Iterator[EncodedBlock]:
    """Encode the blocks with `workers` processes and yield them in order.

    A generator: closing it, or an exception, ends the processes.

    Raises:
        UserError: a block holds bytes that are not UTF-8; the first such block in order.
        WorkerDied: a worker was killed, e.g. for memory.
    """
    with ExitStack() as stack:
        team = [_start_worker(work, stack) for _ in range(workers)]
        by_connection = {worker.connection: worker for worker in team}
        ready: dict[int, EncodedBlock | BaseException] = {}
        sent = done = 0
        exhausted = False
        while not exhausted or done < sent:
            while not exhausted and sent - done < _AHEAD * workers:
                worker = min(team, key=lambda candidate: len(candidate.blocks))
                if len(worker.blocks) >= _IN_WORKER:
                    break
                block = next(blocks, None)
                if block is None:
                    exhausted = True
                    break
                _send(worker, block)
                worker.blocks.append(block.index)
                sent += 1
            if done < sent and done not in ready:
                for connection in wait(list(by_connection)):
                    worker = by_connection[connection]  # type: ignore[index]
                    index, result = _receive(worker)
                    worker.blocks.remove(index)
                    ready[index] = result
            while done in ready:
                result = ready.pop(done)
                if isinstance(result, BaseException):
                    raise result
                done += 1
                yield result


def _start_worker(work: Work, stack: ExitStack) -> _Worker:
    """A fresh interpreter, not a fork: the parent may have threads, torch and gigabytes."""
    ours, theirs = Pipe()
    stack.callback(ours.close)
    command = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
        f"from data_loading.pretokenizer.worker import main; main({theirs.fileno()})"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", command],
        env={**os.environ, **_ONE_THREAD},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    stack.callback(_end, process)
    worker = _Worker(process, ours)
    _send(worker, work)
    return worker


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _send(worker: _Worker, message: Any) -> None:
    try:
        worker.connection.send(message)
    except OSError:
        raise _died(worker) from None


def _receive(worker: _Worker) -> tuple[int, EncodedBlock | BaseException]:
    try:
        index, result, error = worker.connection.recv()
    except (EOFError, OSError):
        raise _died(worker) from None
    if error is None:
        return index, result
    kind, text = error
    return index, UserError(text) if kind == "UserError" else RuntimeError(f"in a worker:\n{text}")


def _died(worker: _Worker) -> WorkerDied:
    with suppress(subprocess.TimeoutExpired):
        worker.process.wait(timeout=5)
    why = f"ended with exit status {worker.process.returncode}"
    if worker.process.returncode == -9:
        why = "was killed by signal 9, most likely because the machine or the job ran out of memory"
    return WorkerDied(
        f"a tokenizing worker (process {worker.process.pid}) {why}. Older outputs are untouched"
    )
