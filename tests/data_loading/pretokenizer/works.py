"""Work on which workers die, wear out or grow. Their processes import this file and no test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data_loading.children import Channel
from data_loading.pretokenizer.blocks import BlockEncoder
from data_loading.pretokenizer.bytes_engine import BytesEngine
from data_loading.pretokenizer.pool import Work


@dataclass(frozen=True)
class Fragile(Work):
    """Bytes, but a text with `poison` ends the worker that gets it.

    definition: how, a signal's name or `exit`; after a comma a file that lets each poison act once.
    """

    def encoder(self) -> BlockEncoder:
        how, _, once = self.definition.partition(",")
        encode = super().encoder()

        class Engine(BytesEngine):
            def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
                poison = next((text for text in texts if b"poison" in text), None)
                if poison and not (once and Path(once, poison.decode()).exists()):
                    if once:
                        Path(once, poison.decode()).touch()
                    if how == "exit":
                        os._exit(3)
                    os.kill(os.getpid(), getattr(signal, how))
                return super().encode_batch(texts)

        return replace(encode, engine=Engine(""))


def fragile(how: str) -> Fragile:
    return Fragile(engine="bytes", definition=how, eot_id=256, vocab_size=257, errors="strict")


@dataclass(frozen=True)
class Wearing(Work):
    """Worn after every third block; each document ends with the process id of its worker."""

    def encoder(self) -> BlockEncoder:
        class Engine(BytesEngine):
            blocks = 0

            def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
                self.blocks += 1
                return super().encode_batch([text + b" %d" % os.getpid() for text in texts])

            @property
            def worn(self) -> bool:
                return self.blocks >= 3

        return replace(super().encoder(), engine=Engine(""))


@dataclass(frozen=True)
class Hungry(Work):
    """Takes so many MB of memory as the text says."""

    def encoder(self) -> BlockEncoder:
        class Engine(BytesEngine):
            def encode_batch(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
                held = []
                for _ in range(int(texts[0]) // 10):
                    held.append(bytearray(b"x" * (10 << 20)))
                    time.sleep(0.02)
                return super().encode_batch(texts)

        return replace(super().encoder(), engine=Engine(""))


@dataclass(frozen=True)
class Offered:
    """Answers its own score for the kernel's choice of whom to kill, then waits."""

    def run(self, channel: Channel) -> None:
        channel.answer(0, int(Path("/proc/self/oom_score_adj").read_text()))
        channel.take()
