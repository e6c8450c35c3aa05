"""A foreign job's log alone: whoever wrote into it, and whatever stands before its lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_builder import explained, outcome, ramp

from memory.explain.plain_log import plain

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    main()\n'
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def labelled(label: str, log: str) -> str:
    return "".join(f"{label}{line}\n" for line in log.splitlines())


@pytest.mark.parametrize(
    "label",
    ["", "[rank0]: ", "[default3]:", "0: ", " 12: ", "[1,0]<stderr>:", "2026-11-23T07:00:00.123Z "],
)
@pytest.mark.parametrize(
    ("error", "verdict"),
    [("MemoryError", "memory_error"), (FULL, "oom_gpu"), ("\x1b[1;35mMemoryError\x1b[0m", "memory_error")],
)
def test_what_stands_before_each_line(tmp_path: Path, label: str, error: str, verdict: str) -> None:
    """torch.distributed, torchrun, srun --label, mpirun, kubectl logs --timestamps; colours."""
    log = labelled(label, f"step 1 loss 3.2\n{TRACEBACK}{error}\n")
    found = explained(tmp_path, log=log)
    assert (found.verdict, found.confidence) == (verdict, "likely")
    ended = explained(tmp_path / "b", outcome=outcome(exit_code=1), samples=ramp(10, 20), log=log)
    assert (ended.verdict, ended.confidence) == (verdict, "certain")
    assert not any("\x1b" in line for line in found.evidence)


def test_a_programs_own_numbers_stay() -> None:
    log = "1: one\n2: two\nMemoryError\nno number\n"
    assert plain(log) == log


@pytest.mark.parametrize(("error", "verdict"), [("MemoryError", "memory_error"), (FULL, "oom_gpu")])
def test_hydras_last_line_is_no_word_of_an_end_that_was_good(
    tmp_path: Path, error: str, verdict: str
) -> None:
    log = (
        f"Error executing job with overrides: ['a=1']\n{TRACEBACK}{error}\n\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    found = explained(tmp_path, log=log)
    assert (found.verdict, found.confidence) == (verdict, "likely")


def test_a_script_that_goes_on_after_the_error(tmp_path: Path) -> None:
    """Whether the program got over it, nobody knows; that it was not for memory, nobody says."""
    found = explained(tmp_path, log=f"{TRACEBACK}{FULL}\nJob finished at Mon Nov 23\n")
    assert (found.verdict, found.confidence) == ("oom_gpu", "possible")
    assert not any("not for memory" in finding.says for finding in found.findings)


def test_an_exception_group(tmp_path: Path) -> None:
    log = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 3, in <module>\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
        '    |   File "a.py", line 2, in f\n    | MemoryError\n    +------------------------------------\n'
    )
    assert explained(tmp_path, log=log).verdict == "memory_error"


@pytest.mark.parametrize(
    "error",
    [
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 16.00GiB "
        "(17179869184B) on device ordinal 0",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1333, unhandled cuda error\nLast error:\n"
        "Failed to CUDA calloc 6291456 bytes",
    ],
)
def test_a_device_without_room_in_the_words_of_others(tmp_path: Path, error: str) -> None:
    found = explained(
        tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + error + "\n"
    )
    assert (found.verdict, found.confidence) == ("oom_gpu", "certain")


@pytest.mark.parametrize(
    "error",
    [
        "pyarrow.lib.ArrowMemoryError: malloc of size 17179869184 failed",
        "duckdb.duckdb.OutOfMemoryException: Out of Memory Error: could not allocate block of size 256.0 KiB",
    ],
)
def test_memory_that_was_refused_in_the_words_of_others(tmp_path: Path, error: str) -> None:
    found = explained(
        tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + error + "\n"
    )
    assert (found.verdict, found.confidence) == ("memory_error", "certain")


KILLED_WORKERS = [
    "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed. ",
    "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor "
    "was unexpectedly terminated. This could be caused by a segmentation fault.\n\n"
    "The exit codes of the workers are {SIGKILL(-9)}",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n----\n[0]:\n"
    "  exitcode  : -9 (pid: 4242)\n  traceback : Signal 9 (SIGKILL) received by PID 4242\n====",
    "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>.",
]


@pytest.mark.parametrize("error", KILLED_WORKERS)
def test_a_worker_that_was_killed(tmp_path: Path, error: str) -> None:
    """Of a log alone nobody knows for what: the kernel counts, and a log does not."""
    found = explained(tmp_path / "log", log=TRACEBACK + error + "\n")
    assert (found.verdict, found.confidence) == ("unknown", "possible")
    assert "SIGKILL" in found.sentence
    assert "the kernel for memory" in found.sentence
    assert found.victim is not None
    assert not found.victim.is_main
    counted = explained(
        tmp_path / "run", outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + error + "\n"
    )
    assert counted.verdict == "killed_from_outside"


@pytest.mark.parametrize(
    ("line", "verdict", "cause"),
    [
        ('            "OOMKilled": true,', "oom_cgroup", "unknown"),
        (
            "Nov 23 07:00:00 n1 systemd[1]: run-r1.service: A process of this unit has been killed by the "
            "OOM killer.",
            "oom_cgroup",
            "unknown",
        ),
        ("     Active: failed (Result: oom-kill) since Mon 2026-11-23", "oom_cgroup", "unknown"),
        (
            "systemd-oomd[511]: Killed /user.slice/run.scope due to memory pressure for /user.slice",
            "killed_from_outside",
            "oom_daemon",
        ),
        (
            'earlyoom[77]: sending SIGTERM to process 4242 uid 1000 "python": badness 900',
            "killed_from_outside",
            "oom_daemon",
        ),
        (
            f"{TRACEBACK}ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
            "memory.",
            "killed_from_outside",
            "oom_daemon",
        ),
        (
            "\tError from slot1: Job has gone over memory limit of 2048 megabytes. Peak usage: 2050.",
            "killed_from_outside",
            "rss_polling",
        ),
    ],
)
def test_who_else_kills_for_memory(tmp_path: Path, line: str, verdict: str, cause: str) -> None:
    found = explained(tmp_path / "a", log=f"step 1\n{line}\n")
    assert (found.verdict, found.cause, found.confidence) == (verdict, cause, "likely")
    assert found.advice
    assert explained(tmp_path / "b", outcome=outcome(), samples=ramp(10, 20), log=line).verdict == "healthy"


def test_an_error_after_which_much_more_was_written(tmp_path: Path) -> None:
    steps = "".join(f"step {number} loss 3\n" for number in range(60))
    found = explained(tmp_path, log=f"{TRACEBACK}{FULL}\nbatch 64 does not fit, now 32\n{steps}")
    assert (found.verdict, found.confidence) == ("oom_gpu", "possible")


def test_no_room_for_nccl(tmp_path: Path) -> None:
    log = (
        "n1:77:88 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n"
        "n1:77:88 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-ZsKfTa\n"
        f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error\n"
    )
    assert explained(tmp_path, log=log).verdict == "shm_full"


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: n1: task 0: Segmentation fault (core dumped)",
        "run.sh: line 3: 12345 Aborted                 (core dumped) python train.py",
    ],
)
def test_a_crash_that_a_shell_tells_of(tmp_path: Path, line: str) -> None:
    found = explained(tmp_path, log=f"step 1\n{line}\n")
    assert (found.verdict, found.confidence) == ("failed", "likely")
    assert "crashed" in found.sentence
