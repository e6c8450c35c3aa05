"""Threads that encode blocks, and one that takes the encoded blocks in their order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Semaphore

from data_loading.pretokenizer.blocks import Block, EncodedBlock

_AHEAD = 3
"""Blocks per thread that are being encoded or wait for an earlier one. Bounds the memory."""


def cores() -> int:
    """Number of cores that this process is allowed to use."""
    return len(os.sched_getaffinity(0))


def encode_in_order(
    blocks: Iterable[Block],
    encode: Callable[[Block], EncodedBlock],
    write: Callable[[Iterator[EncodedBlock]], None],
    threads: int,
    thread_bytes: int | None = None,
) -> None:
    """Encode blocks in threads and write them in their order.

    The calling thread reads the blocks, so that a signal interrupts it while it waits for input.

    Args:
        blocks: Read at most `_AHEAD` blocks per thread further than is written.
        encode: Called by several threads at the same time.
        write: Called once, in a thread of its own, with the encoded blocks. Reading ends when it returns.
        threads: Threads that encode; 0 reads, encodes and writes in the calling thread.
        thread_bytes: Text after which a new thread replaces one that encodes, since what an engine keeps for
            each thread grows with the text; None: never.

    Raises:
        Exception: The error of the earliest block that could not be read, encoded or written.
    """
    if not threads:
        write(map(encode, blocks))
        return
    encoded: SimpleQueue[Future[EncodedBlock] | None] = SimpleQueue()
    room = Semaphore(_AHEAD * threads)

    def in_order() -> Iterator[EncodedBlock]:
        while (future := encoded.get()) is not None:
            yield future.result()
            room.release()

    encoders, left_bytes = ThreadPoolExecutor(threads, "encode"), threads * (thread_bytes or 0)
    with ThreadPoolExecutor(1, "write") as writer:
        written = writer.submit(write, in_order())
        written.add_done_callback(lambda _: room.release())
        try:
            for block in blocks:
                room.acquire()
                if written.done():
                    break
                if thread_bytes and left_bytes <= 0:
                    encoders.shutdown(wait=False)
                    encoders, left_bytes = ThreadPoolExecutor(threads, "encode"), threads * thread_bytes
                left_bytes -= sum(len(chunk.data) for chunk in block.chunks)
                encoded.put(encoders.submit(encode, block))
        except Exception:
            encoded.put(None)
            written.result()
            raise
        except BaseException:
            encoders.shutdown(cancel_futures=True)
            raise
        finally:
            encoded.put(None)
            encoders.shutdown()
        written.result()
