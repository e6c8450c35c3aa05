"""Threads that encode: order, bounded blocks in flight, and the end of the work after an error."""

from __future__ import annotations

import errno
import json
import random
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from data_loading.pretokenizer.blocks import Block, BlockEncoder, EncodedBlock
from data_loading.pretokenizer.engines.bytes import BytesEngine
from data_loading.pretokenizer.pool import encode_in_order
from data_loading.text_io.chunks import Chunk
from data_loading.tokenizers.tokenizer import BytesTokenizer
from experiment_utils.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
ENCODER = BlockEncoder(BytesEngine(BytesTokenizer()), 256, 257, "strict")


def block(index: int, data: bytes) -> Block:
    return Block(index, [Chunk(data, "t", 0, True)])


def blocks(count: int, read: list[int] | None = None) -> Iterator[Block]:
    for index in range(count):
        if read is not None:
            read.append(index)
        yield block(index, b"%d " % index * (1 if index % 3 else 20_000))


def encoded_by(threads: int, given: Iterator[Block]) -> list[EncodedBlock]:
    found: list[EncodedBlock] = []
    encode_in_order(given, ENCODER.encode, found.extend, threads)
    return found


@pytest.mark.parametrize("threads", range(5))
def test_any_number_of_threads_gives_the_same_blocks_in_order(threads: int) -> None:
    found = encoded_by(threads, blocks(60))
    assert [one.index for one in found] == list(range(60))
    for one, given in zip(found, blocks(60), strict=True):
        assert one.ids[:-1].astype(np.uint8).tobytes() == given.chunks[0].data
        assert one.ids[-1] == 256
    assert encoded_by(threads, iter(())) == []


def test_threads_encode_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)

    def encode(given: Block) -> EncodedBlock:
        both.wait()
        return ENCODER.encode(given)

    encode_in_order(blocks(4), encode, list, 2)


def test_blocks_in_flight_are_bounded_while_the_first_is_slow() -> None:
    read: list[int] = []
    go = threading.Event()
    most: list[int] = []

    def encode(given: Block) -> EncodedBlock:
        if given.index == 0:
            assert go.wait(60)
        return ENCODER.encode(given)

    def release() -> None:
        while len(read) < 7:
            time.sleep(0.001)
        time.sleep(0.05)  # more would be read now
        most.append(len(read))
        go.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    encode_in_order(blocks(100, read), encode, list, 2)
    releasing.join()
    assert most == [7], "three for each thread, and one that waits for room"


def test_blocks_in_flight_are_bounded_while_the_writer_is_slow() -> None:
    read: list[int] = []

    def write(encoded: Iterator[EncodedBlock]) -> None:
        for done, _ in enumerate(encoded):
            assert len(read) <= done + 1 + 3 * 2
            time.sleep(0.001)

    encode_in_order(blocks(100, read), ENCODER.encode, write, 2)


@pytest.mark.parametrize("threads", range(5))
def test_the_first_bad_block_is_the_error_and_nothing_after_it_is_written(threads: int) -> None:
    written: list[int] = []
    read: list[int] = []

    def some_bad() -> Iterator[Block]:
        for index in range(500):
            read.append(index)
            data = b"\xff" if index in (7, 9) else b"good " * (20_000 if index == 7 else 1)
            yield Block(index, [Chunk(data, "file.txt", index * 100, False)])

    with pytest.raises(UserError, match="byte 700") as raised:
        encode_in_order(
            some_bad(), ENCODER.encode, lambda found: written.extend(one.index for one in found), threads
        )
    assert raised.value.codes == ["undecodable"]
    assert written == list(range(7))
    assert len(read) < 500


@pytest.mark.parametrize("threads", [0, 2])
def test_blocks_before_an_error_of_the_input_are_written(threads: int) -> None:
    written: list[int] = []

    def damaged() -> Iterator[Block]:
        yield from blocks(10)
        raise UserError("damaged", code="table-damaged")

    with pytest.raises(UserError, match="damaged"):
        encode_in_order(
            damaged(), ENCODER.encode, lambda found: written.extend(one.index for one in found), threads
        )
    assert written == list(range(10))


@pytest.mark.parametrize("threads", [0, 3])
def test_an_error_of_the_writer_ends_the_work(threads: int) -> None:
    read: list[int] = []

    def write(encoded: Iterator[EncodedBlock]) -> None:
        next(encoded)
        raise OSError(errno.ENOSPC, "")

    with pytest.raises(OSError, match="28"):
        encode_in_order(blocks(5000, read), ENCODER.encode, write, threads)
    assert len(read) <= 1 + 3 * 3 + 2


@pytest.mark.parametrize("threads", [0, 3])
def test_a_writer_that_has_enough_ends_the_reading(threads: int) -> None:
    read: list[int] = []
    encode_in_order(blocks(5000, read), ENCODER.encode, next, threads)
    assert len(read) <= 1 + 3 * 3 + 2


def test_an_interrupt_leaves_blocks_that_no_thread_has_begun() -> None:
    begun: list[int] = []

    def encode(given: Block) -> EncodedBlock:
        begun.append(given.index)
        time.sleep(0.05)
        return ENCODER.encode(given)

    def interrupted() -> Iterator[Block]:
        yield from blocks(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_in_order(interrupted(), encode, list, 1)
    assert begun == [0]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("encode", "write"))]


def test_a_thread_is_replaced_after_its_share_of_text() -> None:
    encoded_in: list[int] = []

    def encode(given: Block) -> EncodedBlock:
        encoded_in.append(threading.get_native_id())
        return ENCODER.encode(given)

    same = [block(index, b"x" * 100) for index in range(30)]
    encode_in_order(same, encode, list, 1, thread_bytes=1000)
    assert [encoded_in.count(thread) for thread in dict.fromkeys(encoded_in)] == [10, 10, 10]


@pytest.mark.slow
def test_memory_stays_below_its_bound_on_words_that_never_repeat(
    tmp_path: Path, tokenizer_folder: Callable[[str], Path]
) -> None:
    generator = random.Random(0)
    with open(tmp_path / "a.txt", "w") as file:
        for _ in range(50):
            words = (
                generator.choices(string.ascii_letters, k=generator.randint(3, 14)) for _ in range(100_000)
            )
            file.write(" ".join(map("".join, words)) + "\n")
    command = [sys.executable, str(ROOT / "pretokenize_dataset.py"), str(tmp_path / "a.txt"), "--json"]
    command += ["--tokenizer", str(tokenizer_folder("gpt2")), "--workers", "2"]
    made = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert 100 << 20 < made["peak_memory_bytes"] < 460 << 20
