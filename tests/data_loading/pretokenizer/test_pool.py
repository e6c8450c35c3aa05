"""Worker processes: in order, bounded, gone when their parent is gone, named when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from conf import UserError
from data_loading.pretokenizer.blocks import Block, Chunk
from data_loading.pretokenizer.pool import Work, WorkerDied, cores, encode_in_order

ROOT = Path(__file__).resolve().parents[3]
BYTES = Work(engine="bytes", definition="", eot_id=256, vocab_size=257, errors="strict")


def blocks(count: int, size: int = 1000, seen: list[int] | None = None) -> Iterator[Block]:
    for index in range(count):
        if seen is not None:
            seen.append(index)
        data = bytes([97 + index % 26]) * (size if index % 3 else size * 50)
        yield Block(index, [Chunk(data, "t", 0, index == count - 1)])


def worker_processes() -> list[psutil.Process]:
    started_as = "data_loading.pretokenizer.worker"
    return [child for child in psutil.Process().children() if started_as in " ".join(child.cmdline())]


def test_results_come_in_order_whatever_each_takes() -> None:
    found = list(encode_in_order(blocks(60), BYTES, 3))
    assert [block.index for block in found] == list(range(60))
    assert [int(block.ids[0]) for block in found] == [97 + i % 26 for i in range(60)]
    assert found[-1].ids[-1] == 256
    assert worker_processes() == []


def test_no_blocks_are_no_results() -> None:
    assert list(encode_in_order(iter(()), BYTES, 2)) == []


def test_only_a_bounded_number_of_blocks_is_under_way() -> None:
    seen: list[int] = []
    with closing(encode_in_order(blocks(100, seen=seen), BYTES, 2)) as results:  # type: ignore[type-var]
        for done, _ in enumerate(results):
            assert len(seen) <= done + 1 + 6
            time.sleep(0.001)


def test_nothing_piles_up_behind_a_slow_block() -> None:
    seen: list[int] = []

    def first_is_slow() -> Iterator[Block]:
        for index in range(2000):
            seen.append(index)
            yield Block(index, [Chunk(b"a" * (100_000_000 if index == 0 else 1), "t", 0, False)])

    with closing(encode_in_order(first_is_slow(), BYTES, 2)) as results:  # type: ignore[type-var]
        next(results)
        assert len(seen) <= 6


def test_the_processes_end_with_the_generator() -> None:
    results = encode_in_order(blocks(100), BYTES, 2)
    next(results)
    assert len(worker_processes()) == 2
    results.close()  # type: ignore[attr-defined]
    assert worker_processes() == []


def test_the_first_bad_block_in_order_is_told() -> None:
    def some_bad() -> Iterator[Block]:
        for index in range(20):
            data = b"\xff" if index in (7, 9) else b"good " * (20_000 if index == 7 else 1)
            yield Block(index, [Chunk(data, "file.txt", index * 100, False)])

    seen = []
    with pytest.raises(UserError, match=r"file\.txt: byte 700 \(0xff\)"):
        seen += list(encode_in_order(some_bad(), BYTES, 3))
    assert worker_processes() == []


def test_a_fault_in_a_worker_comes_with_its_traceback() -> None:
    narrow = Work(engine="bytes", definition="", eot_id=None, vocab_size=50, errors="strict")
    with pytest.raises(RuntimeError, match=r"(?s)in a worker:.*blocks\.py.*gave id 97 of a vocabulary of 50"):
        list(encode_in_order(blocks(3), narrow, 1))


def test_a_killed_worker_is_named_with_its_likely_cause() -> None:
    results = encode_in_order(blocks(1000), BYTES, 2)
    next(results)
    victim = worker_processes()[0]
    victim.send_signal(signal.SIGKILL)
    with pytest.raises(
        WorkerDied, match=rf"process {victim.pid}\) was killed by signal 9, most likely .* memory"
    ):
        list(results)
    assert worker_processes() == []


def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        "import os, time\nfrom tests.data_loading.pretokenizer.test_pool import *\n"
        "results = encode_in_order(blocks(1000), BYTES, 2); next(results)\n"
        "print(*[worker.pid for worker in worker_processes()], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, pids))


def runs(pid: int) -> bool:
    """A zombie that nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_modules_beside_the_user_are_not_imported_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    monkeypatch.chdir(tmp_path)
    assert len(list(encode_in_order(blocks(3), BYTES, 1))) == 3


def test_cores_are_those_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fastokens", "huggingface"])
def test_a_worker_stays_below_300_mb_on_random_words(
    engine: str, tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words that never repeat fill every cache. Peak resident size, mapped files included."""
    import random
    import string

    from data_loading.pretokenizer.job import Options, pretokenize
    from data_loading.pretokenizer.texts import TextFile
    from data_loading.tokenizer_files import read_tokenizer

    generator = random.Random(0)
    words = 6_000_000 if engine == "fastokens" else 600_000
    with open(tmp_path / "a.txt", "w") as file:
        for _ in range(words // 1000):
            line = (
                "".join(generator.choices(string.ascii_letters, k=generator.randint(3, 14)))
                for _ in range(1000)
            )
            file.write(" ".join(line) + "\n")
    peaks: list[int] = []
    watch(monkeypatch, peaks)
    tokenizer = read_tokenizer(shared_data / "gpt2", "gpt2")
    pretokenize(
        TextFile(tmp_path / "a.txt"), tokenizer, tmp_path / "a.npy", Options(workers=2, engine=engine)
    )
    assert len(peaks) == 2
    assert max(peaks) < 300 << 20


def watch(monkeypatch: pytest.MonkeyPatch, peaks: list[int]) -> None:
    """Note VmHWM of each worker just before it is ended."""
    from data_loading.pretokenizer import pool

    end: Callable[[Any], None] = pool._end

    def noted(process: subprocess.Popen[bytes]) -> None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        peaks.append(
            int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10
        )
        end(process)

    monkeypatch.setattr(pool, "_end", noted)
