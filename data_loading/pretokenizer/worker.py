"""What a child of `children` runs: its task, until that ends or the parent is gone."""

from __future__ import annotations

from contextlib import suppress

from data_loading.pretokenizer.children import Channel, Mailbox


def main(socket: int, work: int, *mailboxes: int) -> None:
    """Descriptors: the socket to the parent, the file in memory with the task, those for messages."""
    channel = Channel(socket, [Mailbox(descriptor) for descriptor in mailboxes])
    box = Mailbox(work)
    task = box.get()
    box.close()
    with suppress(EOFError, ConnectionError):  # the parent is gone: nobody waits for an answer
        task.run(channel)
