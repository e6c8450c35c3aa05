"""Worker processes: in order, bounded, gone when their parent is gone, named when they die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from data_loading.child_main import offer_itself
from data_loading.children import Child, how_it_died
from data_loading.pretokenizer.blocks import Block, Chunk, EncodedBlock
from data_loading.pretokenizer.engine import Unsupported
from data_loading.pretokenizer.pool import Work, _Pool, cores, encode_in_order
from memory.cgroup import find_levels
from tests.data_loading.pretokenizer.works import Offered, Wearing, fragile
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
BYTES = Work(engine="bytes", definition="", eot_id=256, vocab_size=257, errors="strict")


def blocks(count: int, size: int = 1000, seen: list[int] | None = None) -> Iterator[Block]:
    for index in range(count):
        if seen is not None:
            seen.append(index)
        data = bytes([97 + index % 26]) * (size if index % 3 else size * 50)
        yield Block(index, [Chunk(data, "t", 0, index == count - 1)])


def worker_processes() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "data_loading.child_main" in " ".join(child.cmdline())
    ]


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
            yield Block(index, [Chunk(b"a" * (20_000_000 if index == 0 else 1), "t", 0, False)])

    with closing(encode_in_order(first_is_slow(), BYTES, 2)) as results:  # type: ignore[type-var]
        next(results)
        assert len(seen) <= 6


def test_the_processes_end_with_the_generator() -> None:
    results = encode_in_order(blocks(100), BYTES, 2)
    next(results)
    assert len(worker_processes()) == 2
    results.close()  # type: ignore[attr-defined]
    assert worker_processes() == []


def test_the_first_bad_block_in_order_is_told(golden: Golden) -> None:
    def some_bad() -> Iterator[Block]:
        for index in range(20):
            data = b"\xff" if index in (7, 9) else b"good " * (20_000 if index == 7 else 1)
            yield Block(index, [Chunk(data, "file.txt", index * 100, False)])

    seen = []
    with golden.refused("undecodable"):
        seen += list(encode_in_order(some_bad(), BYTES, 3))
    assert worker_processes() == []


def test_a_fault_in_a_worker_comes_with_its_traceback() -> None:
    narrow = Work(engine="bytes", definition="", eot_id=None, vocab_size=50, errors="strict")
    with pytest.raises(RuntimeError, match=r"(?s)blocks\.py.*97.*50"):
        list(encode_in_order(blocks(3), narrow, 1))


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
    deadline = time.monotonic() + 60
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, pids))


def runs(pid: int) -> bool:
    """A zombie that nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_worker_whose_engine_does_not_fit_says_so_of_each_block() -> None:
    """It would seem to have died of the second, given before the answer to the first was read."""
    answers: list[Any] = []

    class Three:
        def take(self) -> tuple[int, None]:
            if len(answers) == 3:
                raise EOFError
            return len(answers), None

        def answer(self, box: int, answer: Any) -> None:
            answers.append(answer)

    work = Work(engine="fastokens", definition="{}", eot_id=None, vocab_size=9, errors="strict")
    with pytest.raises(EOFError):
        work.run(Three())  # type: ignore[arg-type]
    assert [type(why) for why, _ in answers] == [Unsupported] * 3


def test_modules_beside_the_user_are_not_imported_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    monkeypatch.chdir(tmp_path)
    assert len(list(encode_in_order(blocks(3), BYTES, 1))) == 3


@pytest.mark.parametrize(("before", "after"), [(0, 500), (900, 900)])
def test_a_child_offers_itself_to_the_kernel_where_memory_is_short(
    before: int, after: int, tmp_path: Path
) -> None:
    score = tmp_path / "oom_score_adj"
    score.write_text(f"{before}\n")
    offer_itself(score)
    assert int(score.read_text()) == after
    offer_itself(tmp_path / "none")
    child = Child(Offered())
    try:
        assert child.answer() >= 500 > int(Path("/proc/self/oom_score_adj").read_text())
    finally:
        child.end()


def test_the_memory_of_a_child_is_seen_from_its_start(golden: Golden) -> None:
    child = Child(Offered())
    assert child._seen is not None
    child._process.kill()
    golden.text(how_it_died(child, None), numbers=False)
    child.end()


def test_cores_are_those_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))


def with_poison(count: int, *at: int) -> Iterator[Block]:
    for index in range(count):
        data = b"poison%d" % index if index in at else b"%d" % index
        yield Block(index, [Chunk(data, "big.txt", index * 1000, index == count - 1)])


def texts_of(encoded: Iterator[EncodedBlock]) -> list[bytes]:
    return [block.ids[block.ids < 256].astype(np.uint8).tobytes() for block in encoded]


class TestDeaths:
    def test_blocks_of_a_killed_worker_are_encoded_again(self, golden: Golden) -> None:
        log: list[str] = []
        results = encode_in_order(blocks(300), BYTES, 2, log.append)
        first = next(results)
        victim = worker_processes()[0]
        victim.send_signal(signal.SIGKILL)
        found = [first, *results]
        assert [block.index for block in found] == list(range(300))
        assert [int(block.ids[0]) for block in found] == [97 + i % 26 for i in range(300)]
        assert worker_processes() == []
        assert len(log) == 1
        golden.text(log[0], numbers=False)

    @pytest.mark.parametrize(
        ("how", "at"),
        [
            ("SIGKILL", (0,)),
            ("SIGSEGV", (7,)),
            ("exit", (39,)),
            pytest.param("SIGKILL", (7, 8, 9), marks=pytest.mark.slow),
            pytest.param("SIGSEGV", tuple(range(6)), marks=pytest.mark.slow),
        ],
    )
    def test_whatever_dies_once_changes_nothing(self, how: str, at: tuple[int, ...], tmp_path: Path) -> None:
        log: list[str] = []
        work = fragile(f"{how},{tmp_path}")
        found = texts_of(encode_in_order(with_poison(40, *at), work, 2, log.append))
        assert found == [block.chunks[0].data for block in with_poison(40, *at)]
        assert log
        assert how == "exit" or all(how in line for line in log)

    def test_the_second_death_of_a_block_is_an_error_that_names_its_place(self, golden: Golden) -> None:
        log: list[str] = []
        done: list[bytes] = []
        with golden.refused("worker-died", numbers=False):
            for text in texts_of_each(
                encode_in_order(with_poison(40, 23), fragile("SIGSEGV"), 2, log.append)
            ):
                done.append(text)
        assert done == [b"%d" % index for index in range(len(done))]
        assert len(log) == 1
        assert worker_processes() == []

    def test_a_death_is_retried_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        team: list[int] = []
        alone = _Pool._alone

        def watched(self: _Pool, block: Block, before: str) -> Any:
            team.append(len(worker_processes()))
            return alone(self, block, before)

        monkeypatch.setattr(_Pool, "_alone", watched)
        work = fragile(f"SIGKILL,{tmp_path}")
        assert len(list(encode_in_order(with_poison(40, 20), work, 3, silent))) == 40
        assert team
        assert max(team) == 0, "the others are gone before it begins"

    @pytest.mark.parametrize(("how", "left"), [("SIGKILL", 2), ("SIGSEGV", 3)])
    def test_a_kill_makes_the_team_smaller(self, how: str, left: int, tmp_path: Path) -> None:
        results = encode_in_order(with_poison(200, 5), fragile(f"{how},{tmp_path}"), 3, silent)
        for block in results:
            if block.index == 30:
                assert len(worker_processes()) == left

    def test_an_empty_handed_worker_may_die_too(self) -> None:
        def last_is_slow() -> Iterator[Block]:
            yield from blocks(3)
            idle = worker_processes()
            time.sleep(0.5)
            for worker in idle:
                worker.kill()
            yield Block(3, [Chunk(b"z", "t", 0, True)])

        assert len(list(encode_in_order(last_is_slow(), BYTES, 2, silent))) == 4


def texts_of_each(encoded: Iterator[EncodedBlock]) -> Iterator[bytes]:
    for block in encoded:
        yield from texts_of(iter([block]))


def silent(line: str) -> None:
    pass


def test_a_worn_worker_hands_over_to_a_fresh_one() -> None:
    work = Wearing(engine="bytes", definition="", eot_id=256, vocab_size=257, errors="strict")
    log: list[str] = []
    found = [text.split() for text in texts_of(encode_in_order(with_poison(12), work, 2, log.append))]
    assert log == [], "no death"
    assert [text for text, _ in found] == [b"%d" % index for index in range(12)]
    workers = Counter(pid for _, pid in found)
    assert max(workers.values()) == 3
    assert len(workers) >= 4
    assert worker_processes() == []


HUNGRY = """
import sys
from tests.data_loading.pretokenizer.test_pool import *
from tests.data_loading.pretokenizer.works import Hungry

print(len(list(encode_in_order(hungry(int(sys.argv[1])), Hungry("bytes", "", 256, 257, "strict"), 2, print))))
"""


def hungry(megabytes: int) -> Iterator[Block]:
    """Some that fit alone, but not two at the same time, as two workers have them; or that never do."""
    for index in range(20):
        wanted = megabytes if 8 <= index < 12 else 0
        yield Block(index, [Chunk(b"%d" % wanted, "big.txt", index * 1000, True)])


@pytest.mark.privileged
class TestRealKills:
    @pytest.fixture
    def run(self) -> Iterator[Callable[[int], subprocess.CompletedProcess[str]]]:
        """Run HUNGRY in a cgroup of 300 MB."""
        version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
        if not levels:
            pytest.skip("no memory cgroup to make another one in")
        job = Path(levels[0].folder) / f"highwater_pool_{os.getpid()}_{time.time_ns()}"
        try:
            job.mkdir()
            if version == 2:
                (job.parent / "cgroup.subtree_control").write_text("+memory")
            limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
            (job / limit).write_text(str(300 << 20))
        except OSError as error:
            pytest.skip(f"cannot make a cgroup with a limit here: {error}")

        def run(megabytes: int) -> subprocess.CompletedProcess[str]:
            enter = f"import os; open({str(job / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
            command = [sys.executable, "-c", enter + HUNGRY, str(megabytes)]
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)

        yield run
        for _ in range(50):
            with suppress(OSError):
                job.rmdir()
                break
            time.sleep(0.1)

    def test_an_oom_kill_is_named_and_its_blocks_are_encoded_alone(
        self, run: Callable[[int], subprocess.CompletedProcess[str]], golden: Golden
    ) -> None:
        done = run(160)
        assert done.returncode == 0, done.stderr
        line, count = done.stdout.strip().splitlines()
        assert count == "20"
        golden.text(line, numbers=False)
        peak = re.search(r"(\d+) MB", line)
        assert peak is not None
        assert int(peak.group(1)) >= 60

    def test_a_block_that_never_fits_is_an_error(
        self, run: Callable[[int], subprocess.CompletedProcess[str]], golden: Golden
    ) -> None:
        done = run(600)
        assert done.returncode == 1
        golden.text(done.stderr, numbers=False)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "limit"), [("fastokens", 400), ("huggingface", 600)])
def test_a_worker_stays_below_its_bound_on_random_words(
    engine: str,
    limit: int,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Words that never repeat fill every cache. Peak resident size, mapped files included."""
    import random
    import string

    from data_loading.pretokenizer.blocks import make_blocks
    from data_loading.pretokenizer.engines import ENGINES
    from data_loading.tokenizer import JsonTokenizer
    from data_loading.tokenizer_files import read_tokenizer

    generator = random.Random(0)

    def lines() -> Iterator[Chunk]:
        for _ in range(40 if engine != "huggingface" else 6):
            words = (
                "".join(generator.choices(string.ascii_letters, k=generator.randint(3, 14)))
                for _ in range(100_000)
            )
            yield Chunk(" ".join(words).encode() + b" ", "t", 0, False)
            # one run without a space, as long as the bounds allow for
            yield Chunk("".join(generator.choices(string.ascii_letters, k=1_000_000)).encode(), "t", 0, False)
        yield Chunk(b"", "t", 0, True)

    peaks: list[int] = []
    end = Child.end

    def noted(child: Child) -> None:
        child.note_memory()
        seen = child._seen
        peaks.append(0 if seen is None or seen.peak_rss_bytes is None else seen.peak_rss_bytes)
        end(child)

    monkeypatch.setattr(Child, "end", noted)
    folder = shared_data / "gpt2"
    tokenizer = read_tokenizer(folder, folder.name)
    assert isinstance(tokenizer, JsonTokenizer)
    work = Work(engine, tokenizer.json, tokenizer.eot_id, tokenizer.vocab_size, "strict")
    packed = make_blocks(lines(), tokenizer.cut_rule, ENGINES[engine].block_bytes)
    for _ in encode_in_order(packed, work, 2):
        pass
    assert len(peaks) >= 2
    print(engine, "peaks in MB:", sorted(peak >> 20 for peak in peaks))
    assert max(peaks) < limit << 20
