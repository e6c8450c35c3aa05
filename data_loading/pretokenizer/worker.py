"""A worker process of `pool`: receives blocks, sends back ids, ends when its parent is gone."""

from __future__ import annotations

import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from conf import UserError
from data_loading.pretokenizer.blocks import EncodedBlock


def main(descriptor: int) -> None:
    """Serve the parent at the other end of this socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    connection = Connection(descriptor)
    try:
        encoder = connection.recv().encoder()
        blocks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A thread of its own takes blocks in, so that neither side waits for the other to read.
        threading.Thread(target=_receive, args=(connection, blocks), daemon=True).start()
        message: tuple[int, EncodedBlock | None, tuple[str, str] | None]
        while (block := blocks.get()) is not None:
            try:
                message = (block.index, encoder.encode(block), None)
            except UserError as error:
                message = (block.index, None, ("UserError", str(error)))
            except Exception:
                message = (block.index, None, ("Exception", traceback.format_exc()))
            connection.send(message)
    except (EOFError, ConnectionError):
        pass  # the parent is gone: nobody waits for an answer


def _receive(connection: Connection, blocks: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            blocks.put(connection.recv())
    except (EOFError, OSError):
        blocks.put(None)
