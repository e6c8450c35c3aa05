"""torch's own message, in the wordings of its versions, as people have posted it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_builder import explained, ours, outcome, record

from memory.explain.wordings import gpu_message

GIB = 1 << 30
MESSAGES = {
    # github.com/pytorch/pytorch/issues/67971, torch 1.10
    "1.10, growth": (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 6.00 GiB total capacity; 4.88 "
        "GiB already allocated; 0 bytes free; 4.96 GiB reserved in total by PyTorch)",
        "growth",
    ),
    # github.com/pytorch/pytorch/issues/35901, torch 1.4
    "1.4, fragmentation": (
        "RuntimeError: CUDA out of memory. Tried to allocate 10.84 GiB (GPU 0; 23.65 GiB total "
        "capacity; 1.06 "
        "GiB already allocated; 10.26 GiB free; 12.53 GiB reserved in total by PyTorch)",
        "fragmentation",
    ),
    # github.com/carolchenyx/MGFN./issues/35, torch 2.1, which spells it so
    "2.1, fragmentation": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a "
        "total capacty of "
        "6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by "
        "PyTorch, and 2.30 GiB is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "max_split_size_mb to avoid fragmentation.",
        "fragmentation",
    ),
    # github.com/Tianhao-Qi/Mask2DiT/issues/4: the process that is named may be this very one, in a container
    "2.6, fragmentation": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a total "
        "capacity of "
        "79.33 GiB of which 26.16 GiB is free. Process 76883 has 53.16 GiB memory in use. Of the "
        "allocated memory "
        "11.97 GiB is allocated by PyTorch, and 40.69 GiB is reserved by PyTorch but unallocated. "
        "If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "fragmentation",
    ),
    # github.com/FoundationVision/GenerateU/issues/10
    "2.1, a container's own process": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a "
        "total capacty of "
        "14.75 GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the "
        "allocated memory "
        "14.06 GiB is allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated.",
        "growth",
    ),
    "others": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79.15 "
        "GiB of which 1.00 GiB is free. Process 11 has 60.00 GiB memory in use. Including "
        "non-PyTorch memory, this "
        "process has 18.00 GiB memory in use. Of the allocated memory 17.00 GiB is allocated by "
        "PyTorch, and 100.00 "
        "MiB is reserved by PyTorch but unallocated.",
        "neighbours",
    ),
    "size": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 100.00 GiB. GPU 0 has a "
        "total capacity of "
        "79.15 GiB of which 70.00 GiB is free. Including non-PyTorch memory, this process has 9.00 "
        "GiB memory in use. "
        "Of the allocated memory 8.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but "
        "unallocated.",
        "size",
    ),
    "others that are not listed": (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 1.00 "
        "GiB already allocated; 512.00 MiB free; 1.20 GiB reserved in total by PyTorch)",
        "neighbours",
    ),
    "bare": ("RuntimeError: CUDA error: out of memory", "unknown"),
    "cublas": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "unknown",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_out_of_memory(tmp_path: Path, name: str) -> None:
    line, cause = MESSAGES[name]
    found = explained(
        tmp_path,
        outcome=outcome(exit_code=1),
        log=f"Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\n{line}\n",
        records=[record("begin", "first_step", 50, 300)],
        run=ours(),
    )
    assert (found.verdict, found.cause, found.confidence) == ("oom_gpu", cause, "certain")
    overrides = [advice.override for advice in found.advice]
    assert "training.micro_batch=8" in overrides
    assert not [override for override in overrides if (override or "").startswith("--mem")], (
        "that is of the host"
    )
    if cause == "fragmentation":
        assert overrides[0] == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_the_numbers_of_old_and_new_messages() -> None:
    old = gpu_message(MESSAGES["1.4, fragmentation"][0])
    assert old is not None
    assert old.asked_bytes == int(10.84 * GIB)
    assert old.total_bytes == int(23.65 * GIB)
    assert old.free_bytes == int(10.26 * GIB)
    assert old.unallocated_bytes == int(12.53 * GIB) - int(1.06 * GIB)
    new = gpu_message(MESSAGES["others"][0])
    assert new is not None
    assert (new.asked_bytes, new.others_bytes, new.in_use_bytes) == (2 * GIB, 60 * GIB, 18 * GIB)


def test_a_run_that_says_so_itself(tmp_path: Path) -> None:
    status = {
        "state": "failed",
        "attempt": 1,
        "reason": "OutOfMemoryError: " + MESSAGES["size"][0].partition(": ")[2],
    }
    assert explained(tmp_path, status=status, run=ours()).verdict == "oom_gpu"


def test_no_message() -> None:
    assert gpu_message("all is well") is None


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("MPS backend out of memory (MPS allocated: 9.00 GB, max allowed: 10.00 GB). "
         "Tried to allocate 2.00 GB on private pool.", "oom_gpu"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] and type float on "
         "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", "oom_gpu"),
        ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.",
         "oom_gpu"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] and type float on "
         "/job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu", "memory_error"),
    ],
)  # fmt: skip
def test_other_libraries(tmp_path: Path, line: str, verdict: str) -> None:
    log = f"Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\nRuntimeError: {line}\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log)
    assert found.verdict == verdict
    assert found.advice
    if verdict == "oom_gpu":
        assert "smaller batch" in found.advice[0].text or "half the batch" in found.advice[0].text


BARE = "RuntimeError: CUDA error: out of memory"


@pytest.mark.parametrize("frame", ["pin_memory.py", "storages.py"])
def test_refused_page_locked_memory_is_the_hosts(tmp_path: Path, frame: str) -> None:
    log = f"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "{frame}", line 49, in pin_memory
    return data.pin_memory()
{BARE}
CUDA kernel errors might be asynchronously reported at some other API call.
"""
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log)
    assert (found.verdict, found.confidence) == ("memory_error", "likely")
    assert "page-locked memory" in found.sentence


def test_pinned_memory_in_an_outer_frame_does_not_make_it_the_hosts(tmp_path: Path) -> None:
    log = f"""Traceback (most recent call last):
  File "train.py", line 3, in pin_memory
    pin_memory()
  File "train.py", line 9, in step
    loss = model(batch)
{BARE}
"""
    assert explained(tmp_path, outcome=outcome(exit_code=1), log=log).verdict == "oom_gpu"


def test_handle_that_cannot_be_made_is_likely_for_memory(tmp_path: Path) -> None:
    log = (
        "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n"
    )
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log)
    assert (found.verdict, found.confidence) == ("oom_gpu", "likely")


@pytest.mark.parametrize(
    ("gpu", "cause"),
    [
        ({"allocated_bytes": 10 * GIB, "reserved_bytes": 11 * GIB, "free_bytes": 2 * GIB}, "neighbours"),
        ({"allocated_bytes": 70 * GIB, "reserved_bytes": 77 * GIB, "free_bytes": 0}, "growth"),
        ({"allocated_bytes": 70 * GIB, "reserved_bytes": 77 * GIB}, "growth"),
        ({"allocated_bytes": "?", "reserved_bytes": None, "free_bytes": []}, "unknown"),
    ],
)
def test_message_without_numbers_is_judged_by_the_recorded_device(
    tmp_path: Path, gpu: dict[str, Any], cause: str
) -> None:
    ended = record("end", "train", 60, 300)
    ended["snapshot"]["gpu"] = {"total_bytes": 80 * GIB, **gpu}
    log = f"Traceback (most recent call last):\n  File 'a.py', line 3, in step\n{BARE}\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log, records=[ended], run=ours())
    assert (found.verdict, found.cause) == ("oom_gpu", cause)
    assert any("(memory.jsonl): free" in line for line in found.evidence) == (
        gpu.get("free_bytes") in (0, 2 * GIB)
    )


def test_leak_on_the_device_is_its_cause(tmp_path: Path) -> None:
    ended = record("end", "train", 60, 300, step=400)
    ended["leak"] = {"is_leak": False, "gpu": {"is_leak": True, "slope_bytes_per_step": 3 << 20}}
    log = f"Traceback (most recent call last):\n  File 'a.py', line 3, in step\n{MESSAGES['size'][0]}\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log, records=[ended], run=ours())
    assert (found.verdict, found.cause) == ("oom_gpu", "leak")


def test_run_that_says_oom_itself(tmp_path: Path) -> None:
    status = {
        "state": "oom",
        "attempt": 1,
        "reason": "RuntimeError: CUDA out of memory (CUBLAS_STATUS_ALLOC_FAILED) in step 3: ...",
    }
    found = explained(tmp_path, status=status, run=ours())
    assert (found.verdict, found.cause, found.confidence) == ("oom_gpu", "unknown", "certain")
