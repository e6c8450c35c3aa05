"""Comparisons that err, tarry or die. Their processes import this file and no test."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.children import Channel
from data_loading.pretokenizer import comparison, parity
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.pretokenizer.texts import TextFile
from data_loading.tokenizer_files import read_tokenizer


def make(text: Path, folder: Path, output: str = "a.npy", workers: int = 2) -> tuple[Result, list[str]]:
    said: list[str] = []
    options = Options(workers=workers, block_bytes=20_000)
    tokenizer = read_tokenizer(folder, "gpt2")
    result = pretokenize(TextFile(text), tokenizer, text.with_name(output), options, said.append)
    return result, said


@dataclass(frozen=True)
class Wrong(comparison._Encode):
    def run(self, channel: Channel) -> None:
        channel.answer(0, np.zeros(3, np.uint32))


@dataclass(frozen=True)
class Late(comparison._Encode):
    def run(self, channel: Channel) -> None:
        time.sleep(0.7)
        super().run(channel)


@dataclass(frozen=True)
class Dying(comparison._Encode):
    def run(self, channel: Channel) -> None:
        raise SystemExit(7)


@dataclass(frozen=True)
class Mortal(parity.Trial):
    """Kills itself where it is compared for the first time, or always."""

    always = False

    def run(self, channel: Channel) -> None:
        mark = Path(os.environ["HIGHWATER_TEST_MARK"])
        with suppress(FileExistsError):
            mark.touch(exist_ok=self.always)
            time.sleep(0.4)
            os.kill(os.getpid(), signal.SIGKILL)
        super().run(channel)


@dataclass(frozen=True)
class Doomed(Mortal):
    always = True
