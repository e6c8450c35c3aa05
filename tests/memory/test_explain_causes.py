"""What filled the memory: each cause by its own signs, and advice that begins with what costs least."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import (
    GB,
    LIMIT,
    MAIN,
    MB,
    START_S,
    explained,
    killed,
    oom,
    ours,
    outcome,
    process,
    ramp,
    record,
    sample,
)

from memory.explain import Explanation


def overrides(found: Explanation) -> list[str | None]:
    return [advice.override for advice in found.advice]


def test_the_cheapest_advice_comes_first(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=killed(**oom()),
        samples=ramp(200, 1020, 4),
        records=[record("begin", "train", 3, 900, step=7)],
        run=ours(),
    )
    assert overrides(found) == [
        "training.micro_batch=8",
        "training.activation_checkpointing=true",
        "training.loss_chunk=1024",
        "dataset.num_workers=0",
        "--mem=1280M",
    ]


def test_no_advice_on_batches_where_there_are_none(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=killed(**oom()),
        samples=ramp(200, 1020, 4),
        records=[record("begin", "open_dataset", 3, 900)],
        run=ours(),
    )
    assert not [override for override in overrides(found) if override and override.startswith("training.")]


def test_copy_on_write(tmp_path: Path) -> None:
    """Four workers share 200 MB with the main process; each process stays as it was, the cgroup does not."""
    tree = tuple(process(MAIN + number, 200) for number in range(5))
    common = {"tree_anon_bytes": 1000 * MB, "processes": 5, "tree": tree}
    samples = [sample(at, 210 + 26 * at, **common) for at in range(31)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "copy_on_write")
    assert "DataLoader(num_workers=0)" in overrides(found)


def test_copy_on_write_that_memory_stat_has_not_counted_yet(tmp_path: Path) -> None:
    """memory.stat of v1 lags by up to two seconds: a fork's copies may fill the limit within them."""
    tree = tuple(process(MAIN + number, 50) for number in range(7))
    common = {"tree_anon_bytes": 350 * MB, "processes": 7, "tree": tree, "cache_bytes": 0, "kernel_bytes": 0}
    samples = [sample(at / 4, 92, **common, usage_bytes=round((92 + 40 * at / 4) * MB)) for at in range(14)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause, found.cause_confidence) == ("oom_cgroup", "copy_on_write", "likely")


def test_workers_that_grow_one_after_the_other_copy_nothing(tmp_path: Path) -> None:
    """The sum over the processes stays, since one of them is gone and another grew as much."""
    before = {"tree_anon_bytes": 250 * MB, "processes": 3,
              "tree": (process(MAIN, 50), process(MAIN + 1, 100), process(MAIN + 2, 100))}  # fmt: skip
    after = {"tree_anon_bytes": 250 * MB, "processes": 2, "tree": (process(MAIN, 50), process(MAIN + 2, 200))}
    samples = [sample(at, 130, **before) for at in range(10)]
    samples += [sample(10 + at, 150 + 10 * at, **after) for at in range(10)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.cause != "copy_on_write"


def test_forked_workers_that_share_on(tmp_path: Path) -> None:
    tree = tuple(process(MAIN + number, 200) for number in range(5))
    samples = [
        sample(at, 210 + at / 4, tree_anon_bytes=1000 * MB, processes=5, tree=tree) for at in range(31)
    ]
    found = explained(tmp_path, outcome=outcome(), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_children_that_have_just_begun_are_no_neighbours(tmp_path: Path) -> None:
    """As on a full machine: six of 36 MB, half a second apart, of which the last looks had not found all."""
    held = [30, 66, 102, 138, 174, 196]
    found_of = [30, 66, 66, 102, 102, 102]
    samples = [
        sample(at, u, limit=200 * MB, tree_anon_bytes=tree * MB, beside_anon_bytes=0)
        for at, (u, tree) in enumerate(zip(held, found_of, strict=True))
    ]
    ended = outcome(exit_code=1, limit_bytes=200 * MB, **oom() | {"peak_unreclaimable_bytes": 196 * MB})
    assert explained(tmp_path, outcome=ended, samples=samples).cause != "neighbours"


def test_workers_by_spawn(tmp_path: Path) -> None:
    samples = []
    for at in range(20):
        count = 1 + min(6, at // 2)
        tree = (process(MAIN, 100), *(process(MAIN + number, 148) for number in range(1, count)))
        u = 100 + 148 * (count - 1)
        samples.append(sample(at, u, tree_anon_bytes=u * MB, processes=count, tree=tree))
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "workers")
    assert overrides(found)[0] == "DataLoader(num_workers=0)"


@pytest.mark.parametrize("factor", [1, 4])
def test_a_file_read_whole(tmp_path: Path, factor: int) -> None:
    size = 180 * MB
    u = [100, 100, 100, 100 + 180 * factor, 100 + 180 * factor]
    found = explained(
        tmp_path,
        outcome=killed(**oom()),
        samples=[sample(at, amount) for at, amount in enumerate(u)] + [sample(6, 1020)] * (factor == 4),
        records=[record("begin", "open_dataset", 2, 100)],
        run=ours(),
    )
    loads = [finding for finding in found.findings if finding.cause == "whole_file_load"]
    assert len(loads) == 1
    assert f"x{factor}" in loads[0].says or factor == 4
    assert size == 180 * MB


def test_a_file_read_whole_by_its_stack(tmp_path: Path) -> None:
    source = tmp_path / "load.py"
    source.write_text("import numpy as np\ntokens = np.load('tokens.npy').astype(np.int64)\n")
    stacks = (
        "== 2026-01-01 00:00:00 unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB ==\n"
        f'Current thread 0x00007f (most recent call first):\n  File "{source}", line 2 in <module>\n'
    )
    found = explained(tmp_path / "run", outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert (found.verdict, found.cause) == ("oom_cgroup", "whole_file_load")
    assert any("load.py:2 in <module>: tokens = np.load(" in line for line in found.evidence)
    assert 'np.load(path, mmap_mode="r")' in overrides(found)


@pytest.mark.parametrize("line", ["seen = np.concatenate([seen, new])", "held.append(new.tolist())"])
def test_arrays_that_come_from_no_file(tmp_path: Path, line: str) -> None:
    """What loaded data goes through is no sign of a file by itself."""
    source = tmp_path / "grow.py"
    source.write_text(f"import numpy as np\n{line}\n")
    stacks = (
        "== 2026-01-01 00:00:00 unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB ==\n"
        f'Current thread 0x00007f (most recent call first):\n  File "{source}", line 2 in <module>\n'
    )
    found = explained(tmp_path / "run", outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert (found.verdict, found.cause) == ("oom_cgroup", "growth")


def test_a_stack_of_an_earlier_stage_is_no_evidence(tmp_path: Path) -> None:
    """The box is of 30 s before the stage began in which it died."""
    source = tmp_path / "load.py"
    source.write_text("tokens = np.load('tokens.npy')\n")
    for at_s in (-30, 10):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(START_S + 1 + at_s))
        stacks = (
            f"== {when} unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB ==\n"
            f'Current thread 0x00007f (most recent call first):\n  File "{source}", line 1 in <module>\n'
        )
        found = explained(
            tmp_path / str(at_s), outcome=killed(**oom()), samples=ramp(100, 1010, 40), stacks=stacks,
            records=[record("begin", "first_step", 1, 100)],
        )  # fmt: skip
        assert any("it stood at load.py" in line for line in found.evidence) == (at_s > 0)
        assert (found.cause == "whole_file_load") == (at_s > 0)


@pytest.mark.parametrize("asked", ["Thread", "Current thread"])
def test_of_several_threads_the_one_that_got_the_signal_or_the_main_one(tmp_path: Path, asked: str) -> None:
    """A thread of C++ may get it; faulthandler tells the main thread last. A small worker tells less."""
    head = "== 2026-01-01 00:00:00 unreclaimable 940 of 1024 MB (92%)"
    stacks = (
        f"{head}: 100 python, anon 930 MB ==\n"
        f'{asked} 0x1 (most recent call first):\n  File "/run/helper.py", line 1 in wait\n\n'
        'Thread 0x2 (most recent call first):\n  File "/run/model.py", line 2 in forward\n'
        f"{head}: 101 python, anon 20 MB ==\n"
        'Current thread 0x3 (most recent call first):\n  File "/run/worker.py", line 3 in read\n'
    )
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    (told,) = [line for line in found.evidence if "it stood at" in line]
    assert ("model.py:2 in forward" if asked == "Thread" else "helper.py:1 in wait") in told


def test_a_sampler_list(tmp_path: Path) -> None:
    stacks = (
        "== 2026-01-01 00:00:00 unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB ==\n"
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/venv/lib/python3.11/site-packages/torch/utils/data/sampler.py", line 170 in __iter__\n'
    )
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(100, 1010, 4), stacks=stacks)
    assert found.cause == "sampler"


def test_a_stack_of_before_the_last_stage_is_no_evidence_either(tmp_path: Path) -> None:
    """That stage had ended when it died; the box is of an import, half a minute before."""
    source = tmp_path / "load.py"
    source.write_text("tokens = np.load('tokens.npy')\n")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(START_S - 10))
    stacks = (
        f"== {when} unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB ==\n"
        f'Current thread 0x00007f (most recent call first):\n  File "{source}", line 1 in <module>\n'
    )
    records = [record("begin", "train", 20, 900), record("end", "train", 25, 1000)]
    found = explained(tmp_path / "run", outcome=killed(**oom()), samples=ramp(100, 1010, 30),
                      records=records, stacks=stacks)  # fmt: skip
    assert not [line for line in found.evidence if "load.py" in line]


def test_private_writes(tmp_path: Path) -> None:
    """Mapped pages become anon ones at the same pace, with room to spare."""
    samples = [
        sample(at, 100 + 30 * at, usage_bytes=750 * MB, tree_file_bytes=max(0, 650 - 30 * at) * MB)
        for at in range(21)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert any(finding.cause == "private_writes" for finding in found.findings)


def test_page_tables(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            100 + 30 * at,
            kernel_bytes=28 * at * MB,
            page_tables_bytes=27 * at * MB,
            anon_bytes=100 * MB,
            tree_anon_bytes=100 * MB,
        )
        for at in range(31)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "page_tables")


def test_kernel_memory_that_no_page_table_is(tmp_path: Path) -> None:
    """Pipes that nobody reads: page tables are known, and small; or nothing is known of them."""
    for at, tables in enumerate((2 * MB, None)):
        samples = [
            sample(at, 100 + 30 * at, kernel_bytes=30 * at * MB, page_tables_bytes=tables,
                   anon_bytes=100 * MB, tree_anon_bytes=100 * MB)
            for at in range(31)
        ]  # fmt: skip
        found = explained(tmp_path / str(at), outcome=killed(**oom()), samples=samples)
        assert found.cause_confidence == "possible"
        assert (found.cause == "page_tables") == (tables is None)
        assert "pipes" in found.sentence


def test_a_leak_of_a_script_without_torch_is_not_sent_to_its_losses(tmp_path: Path) -> None:
    command = script(tmp_path, "held = []\nwhile True: held.append(bytes(1 << 20))\n")
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=ramp(100, 1010))
    assert found.cause == "leak"
    assert not any("losses" in advice.text for advice in found.advice)


def test_batches_held_ready(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            200 + 27 * at,
            shmem_bytes=27 * at * MB,
            anon_bytes=200 * MB,
            tree_anon_bytes=200 * MB,
            processes=3,
            tree=(process(MAIN, 100), *(process(MAIN + n, 50, shmem_mb=9 * at) for n in (1, 2))),
        )
        for at in range(31)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "prefetch")
    forks = script(tmp_path, "import mmap, os\nresults = mmap.mmap(-1, 1 << 30)\nos.fork()\n")
    found = explained(tmp_path / "forks", outcome=killed(command=forks, **oom()), samples=samples)
    assert found.cause == "shmem", "no torch, no loader: a map that forked processes fill"


def test_a_cache_that_workers_shared_until_they_were_killed(tmp_path: Path) -> None:
    """At the very peak one of them is left that has it mapped."""
    samples = [
        sample(
            at,
            100 + 30 * at,
            shmem_bytes=30 * at * MB,
            anon_bytes=100 * MB,
            tree_anon_bytes=100 * MB,
            processes=1 + living,
            tree=(process(MAIN, 40), *(process(MAIN + 1 + n, 10, shmem_mb=29 * at) for n in range(living))),
        )
        for at, living in [*((at, 3) for at in range(29)), (29, 1), (30, 1)]
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "shmem")


def test_a_file_on_tmpfs(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            100 + 30 * at,
            shmem_bytes=30 * at * MB,
            anon_bytes=100 * MB,
            tree_anon_bytes=100 * MB,
            dev_shm_used_bytes=30 * at * MB,
        )
        for at in range(31)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "shmem")


def test_files_that_a_dead_run_left(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            500 + 17 * at,
            shmem_bytes=450 * MB,
            anon_bytes=(50 + 17 * at) * MB,
            tree_anon_bytes=60 * MB + 17 * at * MB,
        )
        for at in range(31)
    ]
    left = {"total_bytes": 2 * GB, "used_before_bytes": 450 * MB, "used_after_bytes": 450 * MB}
    found = explained(tmp_path, outcome=killed(dev_shm=left, **oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "shmem")
    assert "before it began" in found.sentence
    assert "ls -la /dev/shm" in overrides(found)


def test_shm_full(tmp_path: Path) -> None:
    full = {"total_bytes": 64 * MB, "used_before_bytes": 0, "used_after_bytes": 64 * MB}
    found = explained(tmp_path, outcome=killed("SIGBUS", dev_shm=full), samples=ramp(100, 150, 10))
    assert (found.verdict, found.cause, found.confidence) == ("shm_full", "shmem", "certain")


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible "
        "that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).",
        "RuntimeError: unable to write to file </torch_99_1>: No space left on device (28)",
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
    ],
)
def test_shm_full_by_the_words_of_torch(tmp_path: Path, line: str) -> None:
    small = {"total_bytes": 64 * MB, "used_before_bytes": 0, "used_after_bytes": 0}
    found = explained(tmp_path, outcome=outcome(exit_code=1, dev_shm=small), log=line)
    assert found.verdict == "shm_full"
    assert found.victim is not None
    assert found.victim.is_main == ("worker" not in line)


def test_sigbus_by_a_file_that_was_cut_short(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed("SIGBUS"), samples=ramp(100, 150, 10), run=ours())
    assert (found.verdict, found.cause) == ("failed", "truncated_file")
    assert "python pretokenize_dataset.py verify tokens.npy" in overrides(found)


def test_a_leak_by_step(tmp_path: Path) -> None:
    records = []
    for step in range(1, 61):
        records.append(record("begin", "train", step, 100 + 4 * step, step=step))
        records.append(record("end", "train", step + 0.9, 104 + 4 * step, step=step))
    found = explained(tmp_path, outcome=outcome(), records=records, samples=ramp(100, 350, 60))
    assert (found.verdict, found.cause) == ("healthy", "leak")
    assert "4.0 MB a step" in found.sentence
    assert "steps" in found.sentence, "when the limit is reached"
    full = [replace(one, host_available_bytes=40 * MB) for one in ramp(100, 350, 60)]
    found = explained(tmp_path / "full", outcome=outcome(), records=records, samples=full)
    assert "10 steps" in found.sentence, "others hold the rest of the machine"


@pytest.mark.parametrize(
    ("verdict", "mb_per_step", "cause"),
    [("leak", 1.0, "leak"), ("leak", 0.1, "growth"), ("levelling off", 1.0, "growth")],
)
def test_a_leak_that_the_run_told_itself(
    tmp_path: Path, verdict: str, mb_per_step: float, cause: str
) -> None:
    """Of a run of 900 MB that leaked 1 MB a step and had few train stages, with evaluations between: each of
    them had told the leak, and smaller micro-batches were advised. A small one fills no limit.
    """
    leak = {
        "verdict": verdict, "is_leak": verdict == "leak", "slope_bytes_per_step": int(mb_per_step * MB),
        "since_step": 154, "eta_steps": 80, "holder": "main",
    }  # fmt: skip
    last = record("end", "train", 55, 819, step=480) | {"leak": leak}
    records = [record("end", "first_step", 5, 306, step=0), record("begin", "train", 50, 813, step=480), last]
    samples = [sample(at, 819 if at > 20 else 300) for at in range(60)] + [sample(60, 900), sample(61, 1010)]
    run = ours()
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples, records=records, run=run)
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)
    assert (overrides(found)[0] == "memory.attribute=true") == (cause == "leak")
    lives = explained(tmp_path / "b", outcome=outcome(), samples=samples[:30], records=records, run=run)
    assert ("reached in 80 steps" in lives.sentence) == (verdict == "leak")


def test_a_run_that_died_of_its_imports_has_not_leaked(tmp_path: Path) -> None:
    """In a job of 139 MB torch was read in at an even rate until the kill, and run.json was not there yet."""
    (tmp_path / "config.yaml").touch()
    records, samples = [record("begin", "start", 0.5, 30)], ramp(30, 1020, 30)
    found = explained(tmp_path, outcome=killed(**oom()), records=records, samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "growth")
    assert not any("losses" in advice.text for advice in found.advice)
    (tmp_path / "config.yaml").unlink()
    found = explained(tmp_path, outcome=killed(**oom()), records=records, samples=samples)
    assert found.cause == "leak", "of a program that is not ours one stage says nothing"


def test_a_leak_by_time_that_died(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(50, 1020, 60))
    assert (found.verdict, found.cause) == ("oom_cgroup", "leak")


@pytest.mark.parametrize(("steps", "cause"), [(0, "growth"), (1, "leak")])
def test_what_a_run_takes_up_to_its_first_step_is_no_leak(tmp_path: Path, steps: int, cause: str) -> None:
    """A step that is too large grows as evenly as a leak."""
    records = [record("begin", "start", 1, 50), record("end", "start", 4, 100)]
    records += [record("begin", "first_step", 5, 120, step=0)]
    records += [record("end", "first_step", 6, 130, step=1), record("begin", "train", 7, 150)][: 2 * steps]
    found = explained(
        tmp_path, outcome=killed(**oom()), samples=ramp(50, 1020, 60), records=records, run=ours()
    )
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)
    assert (overrides(found)[0] == "memory.attribute=true") == (cause == "leak")


@pytest.mark.parametrize(("name", "advised"), [("perl", "heaptrack COMMAND"), ("python3.12", None)])
def test_a_leak_of_another_language_is_not_looked_for_in_python(
    tmp_path: Path, name: str, advised: str | None
) -> None:
    samples = [
        replace(one, tree=(replace(one.tree[0], name=name),)) for one in ramp(50, 1020, 60) if one.tree
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.cause == "leak"
    assert overrides(found)[0] == (advised or "tracemalloc.take_snapshot()")
    assert any("loss.item()" in advice.text for advice in found.advice) == (advised is None)


def test_thrash(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            30,
            usage_bytes=LIMIT - MB,
            cache_bytes=900 * MB,
            refaults=20_000 * at,
            stalled_us=600_000 * at,
        )
        for at in range(30)
    ]
    found = explained(tmp_path, outcome=outcome(), samples=samples, run=ours())
    assert (found.verdict, found.cause) == ("healthy", "thrash")
    assert overrides(found)[0] == "dataset.reader=pread"
    assert not [override for override in overrides(found) if (override or "").startswith("--mem")]


def test_a_run_whose_code_has_no_room_thrashes_however_it_reads(tmp_path: Path) -> None:
    """A run of 32d with 277 of 330 MB stood still in its second step; of its 2 MB of data it was advised."""
    samples = [
        sample(at, 970, usage_bytes=LIMIT - MB, cache_bytes=50 * MB, refaults=100_000 * at)
        for at in range(30)
    ]
    samples[-1] = replace(samples[-1], unreclaimable_bytes=LIMIT)
    found = explained(tmp_path, outcome=outcome(), samples=samples, run=ours())
    assert (found.verdict, found.cause) == ("healthy", "thrash")
    assert "the code of Python and torch" in found.sentence
    assert "dataset.reader=pread" not in overrides(found)
    assert (overrides(found)[-1] or "").startswith("--mem")


def test_a_timeout_for_thrash(tmp_path: Path) -> None:
    samples = [
        sample(at, 30, usage_bytes=LIMIT - MB, refaults=20_000 * at, stalled_us=600_000 * at)
        for at in range(30)
    ]
    command = ["timeout", "30", "python", "a.py"]
    found = explained(tmp_path, outcome=outcome(exit_code=124, command=command), samples=samples)
    assert (found.verdict, found.cause) == ("timeout", "thrash")


def test_memory_high(tmp_path: Path) -> None:
    counters = {
        "counters_before": {"oom_kill": 0, "high": 5},
        "counters_after": {"oom_kill": 0, "high": 90_000},
    }
    found = explained(tmp_path, outcome=outcome(**counters), samples=ramp(100, 300))
    assert (found.verdict, found.cause) == ("healthy", "throttled")


def test_many_small_workers(tmp_path: Path) -> None:
    tree = (process(MAIN, 50), *(process(MAIN + number, 12 + 50) for number in range(1, 40)))
    samples = [
        sample(at, 60 + 30 * at, tree_anon_bytes=int((50 + 39 * 50 + 30 * at) * MB), processes=40, tree=tree)
        for at in range(31)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.cause == "workers"


def test_forked_workers_without_memory_of_their_own_are_no_cause(tmp_path: Path) -> None:
    tree = tuple(process(MAIN + number, 900) for number in range(5))
    samples = [
        sample(at, 905 + 3 * at, tree_anon_bytes=4500 * MB, processes=5, tree=tree) for at in range(31)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.cause not in ("workers", "copy_on_write")


def test_what_others_hold_in_the_cgroup_is_not_the_workers_own(tmp_path: Path) -> None:
    """As a process beside a run of 285 MB, with two workers that share most of theirs, filled its job."""
    tree = (process(MAIN, 285), *(process(MAIN + number, 227) for number in (1, 2)))
    samples = [
        sample(at, 335 + 20 * at, limit=500 * MB, tree_anon_bytes=740 * MB, processes=3, tree=tree,
               beside_anon_bytes=20 * at * MB)
        for at in range(9)
    ]  # fmt: skip
    found = explained(tmp_path, outcome=killed(**oom(), limit_bytes=500 * MB), samples=samples)
    assert "workers" not in [finding.cause for finding in found.findings]
    assert found.cause == "neighbours"


def script(folder: Path, text: str) -> list[str]:
    """The command that runs it."""
    path = folder / "script.py"
    path.write_text(text)

    os.utime(path, (1, 1))
    return ["python", str(path)]


def test_a_load_in_the_script_while_cache_rises(tmp_path: Path) -> None:
    command = script(tmp_path, "import sys\ndata = open(sys.argv[1], 'rb').read()\n")
    samples = [
        sample(at, 100 + 90 * at, cache_bytes=80 * at * MB, usage_bytes=min(1024, 100 + 170 * at) * MB)
        for at in range(11)
    ]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=samples)
    assert found.cause == "whole_file_load"
    assert any("script.py:2: data = open" in line for line in found.evidence)


def test_a_private_map_in_the_script_while_cache_rises(tmp_path: Path) -> None:
    command = script(tmp_path, "import numpy as np\ndata = np.load('a.npy', mmap_mode='c')\n")
    samples = [
        sample(at, 100 + 90 * at, cache_bytes=80 * at * MB, usage_bytes=min(1024, 100 + 170 * at) * MB)
        for at in range(11)
    ]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=samples)
    assert found.cause == "private_writes"


@pytest.mark.parametrize("is_named", [True, False])
def test_a_file_that_is_larger_than_the_limit(tmp_path: Path, is_named: bool) -> None:
    """Read at once it is gone between two samples: what it is, the script and the file say."""
    path = tmp_path / "tokens.npy"
    with path.open("wb") as file:
        file.truncate(3 * GB)
    name = repr(str(path)) if is_named else "sys.argv[1]"
    command = [*script(tmp_path, f"import sys\ndata = open({name}, 'rb').read()\n"), str(path)]
    seen = [*(sample(at, 30) for at in range(3)), sample(3.2, 700)]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=seen)
    assert (found.cause, found.cause_confidence) == ("whole_file_load", "likely")
    assert [words for words in overrides(found) if words.startswith("--mem")] == ["--mem=4G"]
    mapped = script(tmp_path, f"import numpy as np\ndata = np.load({str(path)!r}, mmap_mode='r')\n")
    found = explained(tmp_path / "b", outcome=killed(command=mapped, **oom()), samples=seen)
    assert found.cause_confidence != "likely" or found.cause != "whole_file_load"


def test_a_line_that_names_its_file_reads_no_other(tmp_path: Path) -> None:
    """A configuration was read whole; the large file of the command was not."""
    large, small = tmp_path / "tokens.npy", tmp_path / "config.json"
    for path, size in ((large, 3 * GB), (small, 100)):
        with path.open("wb") as file:
            file.truncate(size)
    command = [*script(tmp_path, f"config = open({str(small)!r}, 'rb').read()\n"), str(large)]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=ramp(100, 1010, 12))
    assert found.cause != "whole_file_load", found.sentence


@pytest.mark.parametrize("opened", ["np.load('a.npy',mmap_mode='c')", "np.memmap('a.bin', np.uint8, 'c')"])
def test_a_private_map_that_the_script_writes_to(tmp_path: Path, opened: str) -> None:
    """With all of the file in cache already nothing else tells: not a leak, whatever sample comes last."""
    lines = f"import numpy as np\na={opened}\nfor i in range(9): a[i:i+9]+=1\n"
    command = script(tmp_path, lines)
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=ramp(100, 1010))
    assert (found.cause, found.cause_confidence) == ("private_writes", "likely")
    read = script(tmp_path, lines.replace("a[i:i+9]+=1", "print(a[i] == 1)"))
    found = explained(tmp_path / "b", outcome=killed(command=read, **oom()), samples=ramp(100, 1010))
    assert found.cause != "private_writes"


def test_what_to_do_of_forks_that_are_no_loader(tmp_path: Path) -> None:
    """They are forks already, and no torch is in sight."""
    command = script(tmp_path, "import os\nfor i in range(40): os.fork()\n")
    tree = (process(MAIN, 9), *(process(MAIN + at, 26) for at in range(1, 38)))
    u = {"tree": tree, "tree_anon_bytes": 971 * MB, "processes": 38}
    seen = [sample(at, 100 + 90 * at, **(u if at == 10 else {})) for at in range(11)]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=seen)
    assert found.cause == "workers"
    assert not [words for words in overrides(found) if "DataLoader" in (words or "")]
    assert "fewer worker processes at once" in found.advice[0].text
    torch = script(tmp_path, "import torch\n")
    found = explained(tmp_path / "b", outcome=killed(command=torch, **oom()), samples=seen)
    assert "DataLoader(num_workers=0)" in overrides(found)


def test_the_tracker_of_shared_memory_is_no_worker(tmp_path: Path) -> None:
    tree = (process(MAIN, 9, shmem_mb=800), process(MAIN + 1, 7))
    seen = [sample(at, 20 + 95 * at, shmem_bytes=95 * at * MB, tree=tree, processes=2) for at in range(11)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=seen)
    assert found.cause == "shmem"
    assert not [words for words in overrides(found) if "DataLoader" in (words or "")]
    assert any("1 process had it mapped" in line for line in found.evidence)


def test_a_script_that_was_edited_since_says_nothing(tmp_path: Path) -> None:
    command = script(tmp_path, "data = open('a').read()\n")
    (tmp_path / "script.py").touch()
    samples = [sample(at, 100 + 90 * at, cache_bytes=80 * at * MB) for at in range(11)]
    found = explained(tmp_path / "run", outcome=killed(command=command, **oom()), samples=samples)
    assert found.cause == "growth"


def test_sigbus_where_the_run_had_put_files_into_dev_shm(tmp_path: Path) -> None:
    samples = [
        sample(at, 100, dev_shm_used_bytes=10 * at * MB, dev_shm_total_bytes=1000 * MB) for at in range(10)
    ]
    left = {"total_bytes": 1000 * MB, "used_before_bytes": 0, "used_after_bytes": 0}
    found = explained(tmp_path, outcome=killed("SIGBUS", dev_shm=left), samples=samples)
    assert (found.verdict, found.confidence) == ("shm_full", "likely")


def test_a_counter_that_lags_is_no_sharing(tmp_path: Path) -> None:
    """memory.stat of v1 stood still while spawned workers came: usage tells that nothing was shared."""
    samples = []
    for at in range(12):
        count = 1 + at // 2
        tree = (process(MAIN, 5), *(process(MAIN + number, 180) for number in range(1, count)))
        u = 5 + 180 * (count - 1)
        seen = u if at > 7 else 200
        samples.append(
            sample(at, min(u, seen), anon_bytes=min(u, seen) * MB, usage_bytes=(u + 20) * MB,
                   tree_anon_bytes=u * MB, processes=count, tree=tree)
        )  # fmt: skip
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.cause == "workers"


def test_a_top_that_was_not_sampled(tmp_path: Path) -> None:
    """What grew on is told so; what came in between is not said to have come faster than is known."""

    def dead(after_s: float, peak_mb: int) -> dict[str, Any]:
        return killed(ended_s=START_S + after_s, **oom() | {"peak_unreclaimable_bytes": peak_mb * MB})

    grew = [sample(at, 100 + 200 * at) for at in range(4)]
    found = explained(tmp_path / "a", outcome=dead(5.2, 700), samples=grew)
    assert found.cause == "growth"
    told = "memory grew by 200 MB/s to 700 MB of 1.0 GB (68%), and within 2.2 s of that look"
    stood = [*grew, *(sample(3 + at, 700 + at) for at in range(1, 4))]  # then a handler of SIGTERM saved
    still = explained(tmp_path / "d", outcome=dead(7.5, 703), samples=stood)
    assert "rose between two samples, within 1.5 s" in still.sentence, still.sentence
    assert f"{told} it was at the limit" in found.sentence
    calm = [sample(at, 100) for at in range(4)]
    found = explained(tmp_path / "b", outcome=dead(3.5, 100), samples=calm)
    assert "what filled it rose between two samples, within 0.5 s" in found.sentence


@pytest.mark.parametrize("seconds", [2, 60])
def test_most_of_a_rise_at_once(tmp_path: Path, seconds: int) -> None:
    samples = [sample(0, 100), sample(1, 900), sample(seconds, 1020)]
    found = explained(tmp_path / "run", outcome=killed(**oom()), samples=samples)
    assert ("at once" in found.sentence, "most of it within two seconds" in found.sentence) == (
        seconds == 2,
        seconds == 60,
    )


def test_cache_at_the_limit_before_a_kill_is_no_comfort(tmp_path: Path) -> None:
    full = [sample(at, 300, usage_bytes=LIMIT - MB, cache_bytes=700 * MB) for at in range(5)]
    found = explained(
        tmp_path / "run", outcome=killed(**oom() | {"peak_unreclaimable_bytes": 300 * MB}), samples=full
    )
    assert found.verdict == "oom_cgroup"
    assert "cache_at_the_limit" not in [one.rule for one in found.findings]
    calm = explained(tmp_path / "well", outcome=outcome(), samples=full)
    assert "cache_at_the_limit" in [one.rule for one in calm.findings]


def test_files_that_are_locked_are_no_cache_that_kills_nothing(tmp_path: Path) -> None:
    """What of U is no other part of it."""
    samples = [
        sample(at, 50 + 95 * at, anon_bytes=40 * MB, shmem_bytes=0, kernel_bytes=10 * MB, cache_bytes=MB)
        for at in range(11)
    ]
    assert (samples[0].locked_bytes, samples[-1].locked_bytes) == (0, 950 * MB)
    found = explained(tmp_path / "died", outcome=killed(**oom()), samples=samples)
    assert (found.cause, found.cause_confidence) == ("growth", "likely")
    assert "files that are locked in memory" in found.sentence
    assert "VmLck" in (found.advice[0].override or "")
    well = explained(tmp_path / "well", outcome=outcome(), samples=samples)
    assert (well.verdict, well.cause, well.near_limit) == ("healthy", "none", True)


def test_page_cache_that_could_not_be_given_back(tmp_path: Path) -> None:
    """A file locked into memory: the kernel kills while U is far from the limit. Or U rose since the look."""
    samples = [
        sample(at, 15, usage_bytes=1020 * MB, cache_bytes=950 * MB, limit_hits=10 * at) for at in range(20)
    ]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert (found.cause, found.cause_confidence) == ("growth", "possible")
    assert "could not be given back" in found.sentence
    assert any("950 MB of the 1.0 GB in use was page cache" in line for line in found.evidence)
    assert any("VmLck" in (advice.override or "") for advice in found.advice)
