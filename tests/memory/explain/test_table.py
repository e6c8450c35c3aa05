"""The table of rows: for each, signals on which it holds, and a change to them on which it does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.accounting.sacct import Row as SlurmRow
from memory.explain.decide import find
from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.growth import Leaking, Rise
from memory.explain.evidence.log_patterns import MANAGERS
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import Neighbours, Victim, Workers
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import SlurmRows
from memory.explain.rules import TABLE
from memory.explain.signals import Parts, Said, SharedMemory, Signals
from memory.explain.verdict.advice import ADVICE
from memory.explain.verdict.evidence_lines import LINES
from memory.record.evidence import Evidence
from tests.memory.deaths.recorded import read_answers

MB, GB = 1 << 20, 1 << 30
ROWS = {row.name: row for row in TABLE}
DOCS = Path(__file__).resolve().parents[3] / "docs" / "memory-explain.md"

KILLED = {
    "end": "signal",
    "signal": "SIGKILL",
    "signal_is_certain": True,
    "has_run": True,
    "has_samples": True,
}
IN_CGROUP = {
    "limit_at": "cgroup",
    "limit_bytes": GB,
    "peak_share": 0.99,
    "last_share": 0.99,
    "nearness": "near",
}
COUNTED = {**KILLED, **IN_CGROUP, "kills": "counted", "kill_count": 1}
FAILED = {"end": "error", "exit_code": 1, "has_run": True, "kills": "none"}
RISE = Rise(0, GB, 0.0, 10.0, 100 * MB, 50, 0.9)
FULL_SHM = SharedMemory(full=0.95, total_bytes=GB, used_bytes=GB)
SHARED = SharedMemory(share=0.8)
FORKED = Workers(4, 100 * MB, 200 * MB, 210 * MB, copied_bytes=600 * MB)
SPAWNED = Workers(4, 800 * MB, 190 * MB, 210 * MB)
ROW = SlurmRow("42", None, "FAILED", exit_code=9, exit_signal=9)


def error(kind: str, **more: Any) -> dict[str, Any]:
    """Signals of a run that ended by that error."""
    return {**FAILED, "error": OwnError(kind, "line", "text", "Error: line", **more)}


def gpu(**amounts: Any) -> dict[str, Any]:
    """Signals of a GPU without room."""
    parts = {f"{name}_bytes": value for name, value in amounts.items()}
    return error("gpu_message") | {"gpu": GpuMessage(**parts, line="line")}


def said(*kinds: str) -> dict[str, Any]:
    return {"said": {kind: Said("line") for kind in kinds}}


def slurm(**values: Any) -> dict[str, Any]:
    return {"slurm": SlurmRows(source="sacct", **values)}


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "machine_full": ("likely", COUNTED | {"limit_at": "host"}, {"kills": "none"}),
    "killed_in_cgroup": ("certain", COUNTED, {"kills": "none"}),
    "named_in_kernel_log": ("likely", {"end": "log only", **said("kernel_cgroup")}, {"said": {}}),
    "killed_uncounted": ("likely", KILLED | IN_CGROUP, {"last_share": 0.5}),
    "slurm_out_of_memory": ("certain", slurm(out_of_memory=(ROW,)), slurm()),
    "rss_polled": ("likely", KILLED | slurm(polls_rss=True, rss_bytes=2 * GB, asked_bytes=GB),
                   slurm(polls_rss=False, rss_bytes=2 * GB, asked_bytes=GB)),
    "slurm_timeout": ("certain", KILLED | said("slurm_timeout"), {"end": "ok"}),
    "slurm_preempted": ("certain", KILLED | said("slurm_preempted"), {"kills": "counted"}),
    "slurm_node_failed": ("certain", KILLED | said("slurm_node_failed"), {"said": {}}),
    "slurm_requeued": ("certain", KILLED | said("slurm_requeued"), {"said": {}}),
    "slurm_cancelled": ("certain", KILLED | slurm(ended_by=replace(ROW, state="CANCELLED")), slurm()),
    "asked_to_stop": ("certain", KILLED | {"signal": "SIGTERM", "asked_by": "SIGTERM"},
        {"signal": "SIGSEGV"}),
    "out_of_time": ("certain", KILLED | {"timed_out_by": "timeout"}, {"timed_out_by": ""}),
    "killed_from_outside": ("certain", KILLED | IN_CGROUP | {"kills": "none", "peak_share": 0.5},
                            {"kills": "counted"}),
    "killed_by_unknown": ("unknown", KILLED, {"kills": "none"}),
    **{kind: ("likely", {"end": "log only", **said(kind)}, {"end": "ok"})
       for kind in ("container_oom", "memory_daemon", "manager_poll", "manager_timeout")},
    "gpu_full": ("certain", gpu(asked=GB, total=16 * GB, allocated=15 * GB), {"end": "ok"}),
    "shm_full": ("certain", error("shm_full") | {"shared": FULL_SHM}, {"error": OwnError()}),
    "worker_died": ("likely", error("worker_killed"), {"kills": "counted"}),
    "bus_error": ("unknown", KILLED | {"signal": "SIGBUS"}, {"shared": FULL_SHM}),
    "disk_full": ("certain", error("disk_full", names_file=True), {"error": OwnError("exception", "x")}),
    "memory_refused": ("certain", error("memory_error"), {"error": OwnError("exception", "x")}),
    "pinned_memory": ("likely", error("pinned_memory"), {"error": OwnError("gpu_oom", "x")}),
    "ended_by_signal": ("likely", KILLED | {"signal": "SIGSEGV"}, {"signal": "SIGKILL"}),
    "failed": ("likely", FAILED, {"end": "ok", "exit_code": 0}),
    "running": ("likely", {"end": "running"}, {"end": "lost"}),
    "ended_well": ("certain", {"end": "ok"}, {"end": "error"}),
    "lost": ("unknown", {"end": "lost"}, {"end": "running"}),
    "no_evidence": ("certain", {"end": "no evidence"}, {"end": "lost"}),
    "neighbours": ("likely", COUNTED | {"neighbours": Neighbours(GB, 0.6)}, {"neighbours": Neighbours()}),
    "copy_on_write": ("likely", COUNTED | {"workers": FORKED}, {"workers": replace(FORKED, copied_bytes=0)}),
    "prefetch": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": replace(SHARED, is_of_workers=True)},
                 {"shared": SHARED}),
    "shared_memory": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": SHARED},
        {"shared": SharedMemory()}),
    "workers": ("likely", COUNTED | {"parts": Parts(u=GB), "workers": SPAWNED}, {"workers": FORKED}),
    "page_tables": ("likely", COUNTED | {"parts": Parts(u=GB, page_tables=GB // 2)}, {"parts": Parts(u=GB)}),
    "too_small_from_the_start": ("likely", COUNTED | {"needed_bytes": 2 * GB}, {"has_made_a_step": True}),
    "leak": ("likely", {"leak": Leaking("1 MB a step", "line")}, {"leak": None}),
    "kernel_memory": ("unknown", COUNTED | {"parts": Parts(u=GB, kernel=GB // 2)},
                      {"parts": Parts(u=GB, kernel=GB // 2, page_tables=GB // 2)}),
    "growth": ("likely", COUNTED | {"rise": RISE, "rose_by": "anon"}, {"kills": "none", "nearness": "far"}),
    "whole_file": ("likely", COUNTED | {"rise": RISE, "cache_per_anon": 0.9}, {"cache_per_anon": 9.0}),
    "throttled": ("likely", {"high_events": 1000}, {"high_events": 9}),
    "swapped": ("likely", {"swap_rose_bytes": GB}, {"swap_rose_bytes": MB}),
    "cache_at_limit": ("certain", IN_CGROUP | {"peak_share": 0.2, "usage_share": 1.0},
                       {"kills": "counted"}),
}  # fmt: skip
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "neighbours": ("machine_full", COUNTED | {"limit_at": "host", "peak_of_host": 0.2}),
    "leak": ("gpu_full", gpu() | {"gpu_leak_bytes": MB}),
    "neighbours of the GPU": ("gpu_full", gpu(total=16 * GB, others=12 * GB)),
    "fragmentation": ("gpu_full", gpu(asked=GB, unallocated=2 * GB, total=16 * GB)),
    "size": ("gpu_full", gpu(asked=20 * GB, total=16 * GB)),
    "growth": ("gpu_full", gpu(asked=GB, total=16 * GB, allocated=15 * GB)),
    "None": ("gpu_full", gpu()),
    "rlimit": ("memory_refused", error("memory_error") | {"rlimits": ("RLIMIT_AS is 2 GB",)}),
    "None of refused memory": ("memory_refused", error("memory_error")),
    "truncated_file": (
        "bus_error",
        KILLED | {"signal": "SIGBUS", "shared": SharedMemory(full=0.1, total_bytes=GB)},
    ),
    "shmem": ("bus_error", KILLED | {"signal": "SIGBUS"}),
}
"""Causes of rows that choose one."""


def test_every_row_has_a_case_and_a_description() -> None:
    assert set(CASES) == {row.name for row in TABLE} - {"slurm_notes"}
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert all(row.sign and (row.verdict or row.cause or row.shows) for row in TABLE)
    assert {word for row in TABLE for word in row.advice.split()} <= set(ADVICE)
    known = {*LINES, *(pattern.kind for pattern in MANAGERS)}
    assert {word for row in TABLE for word in row.shows.split()} <= known


@pytest.mark.parametrize("name", CASES)
def test_row_holds_on_its_signals_alone(name: str) -> None:
    confidence, signals, other = CASES[name]
    facts = RunFacts(Evidence(Path(os.devnull)))
    holds = Signals(facts, victim=Victim(True, 7, "python"), **signals)
    found = ROWS[name].find(holds)
    assert found is not None
    assert found.confidence == confidence
    assert found.says
    assert ROWS[name].find(replace(holds, **other)) is None


@pytest.mark.parametrize("cause", CAUSES)
def test_row_chooses_cause(cause: str) -> None:
    name, signals = CAUSES[cause]
    found = ROWS[name].find(Signals(RunFacts(Evidence(Path(os.devnull))), **signals))
    assert found is not None
    assert str(found.cause) == cause.partition(" ")[0]


def test_no_row_fails_on_absent_evidence() -> None:
    assert find(Signals(RunFacts(Evidence(Path(os.devnull)))))[1] == []


def test_rows_of_recordings_are_in_the_table() -> None:
    fired = {rule for answer in read_answers().values() for rule in answer["rules"]}
    assert fired <= set(ROWS)


def test_docs_table_is_generated_from_rows(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes it."""
    rows = []
    for row in TABLE:
        cause, verdict = (
            value if not callable(value) else "by its evidence" for value in (row.cause, row.verdict)
        )
        rows.append(
            f"| `{row.name}` | {' '.join(filter(None, dict.fromkeys((verdict, cause)))) or 'a note'} | "
            f"{row.sign} |\n"
        )
    head = "| row | says | condition |\n|---|---|---|\n"
    page, table = DOCS.read_text(), head + "".join(rows)
    begin = page.index(head)
    end = page.find("\n\n", begin)
    if request.config.getoption("--update-golden"):
        DOCS.write_text(page[:begin] + table.rstrip("\n") + (page[end:] if end >= 0 else "\n"))
    else:
        assert table.rstrip("\n") == page[begin : end if end >= 0 else None].rstrip("\n")
