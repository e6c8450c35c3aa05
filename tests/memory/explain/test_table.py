"""The table of rows: for each, signals on which it holds, and a change to them on which it does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.accounting.sacct import Row as SlurmRow
from memory.explain.decide import find
from memory.explain.evidence.files_read import FilesRead
from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.leaks_seen import Leaking
from memory.explain.evidence.log_patterns import MANAGERS
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import Neighbours, Victim, Workers
from memory.explain.evidence.rise import Rise
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import SlurmRows
from memory.explain.rules import TABLE
from memory.explain.signals import Parts, PressureSigns, Said, SharedMemory, Signals
from memory.explain.verdict.advice import ADVICE
from memory.explain.verdict.evidence_lines import LINES, SENTENCES
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
RISE = Rise(0, GB, 0.0, 10.0, 100 * MB, 50, 0.99, 0.9)
FULL_SHM = SharedMemory(full=0.95, total_bytes=GB, used_bytes=GB)
SHARED = SharedMemory(share=0.8)
FILE = FilesRead(cache_per_anon=0.9, is_quick=True)
FORKED = Workers(4, 100 * MB, 200 * MB, 210 * MB, are_forked=True, copied_bytes=600 * MB, shared_bytes=GB)
SPAWNED = Workers(4, 800 * MB, 190 * MB, 210 * MB)
ROW = SlurmRow("42", None, "FAILED", exit_code=9, exit_signal=9)


def error(kind: str, **more: Any) -> dict[str, Any]:
    """Signals of a run that ended by that error."""
    return {**FAILED, "error": OwnError(kind, "line", "text", "Error: line", **more)}


def gpu(**amounts: Any) -> dict[str, Any]:
    """Signals of a GPU without room."""
    values = dict.fromkeys(("asked", "total", "free", "allocated", "unallocated", "in_use"))
    parts = {f"{name}_bytes": value for name, value in (values | amounts).items() if name != "others"}
    message = GpuMessage(**parts, others_bytes=amounts.get("others", 0), line="line")  # type: ignore[arg-type]
    return error("gpu_message") | {"gpu": message}


def said(*kinds: str) -> dict[str, Any]:
    return {"said": {kind: Said("line") for kind in kinds}}


def slurm(**values: Any) -> dict[str, Any]:
    return {"slurm": SlurmRows(source="sacct", **values)}


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "machine_full": ("likely", COUNTED | {"limit_at": "host"}, {"kills": "none"}),
    "killed_in_cgroup": ("certain", COUNTED, {"kills": "none"}),
    "named_in_kernel_log": ("likely", {"end": "log only", **said("kernel_cgroup")}, {"said": {}}),
    "killed_above": ("likely", KILLED | {"parent_killed": True}, {"signal": "SIGTERM"}),
    "killed_uncounted": ("likely", KILLED | IN_CGROUP, {"last_share": 0.5}),
    "limit_above": ("certain", COUNTED | {"limit_is_above": True}, {"limit_is_above": False}),
    "slurm_out_of_memory": ("certain", slurm(out_of_memory=(ROW,)), slurm()),
    "rss_polled": ("likely", KILLED | slurm(polls_rss=True, rss_bytes=2 * GB, asked_bytes=GB),
                   slurm(polls_rss=False, rss_bytes=2 * GB, asked_bytes=GB)),
    "slurm_timeout": ("certain", KILLED | said("slurm_timeout"), {"end": "ok"}),
    "slurm_preempted": ("certain", KILLED | said("slurm_preempted"), {"kills": "counted"}),
    "slurm_node_failed": ("certain", KILLED | said("slurm_node_failed"), {"said": {}}),
    "slurm_requeued": ("certain", KILLED | said("slurm_requeued"), {"said": {}}),
    "slurm_cancelled": ("certain", KILLED | slurm(ended_by=replace(ROW, state="CANCELLED")), slurm()),
    "slurm_asked_to_stop": ("certain", slurm(ended_by=replace(ROW, exit_signal=15)), {"end": "ok"}),
    "slurm_killed_at_request": ("unknown", slurm(killed=(ROW,), max_rss_bytes=GB, asked_bytes=GB),
                                slurm(killed=(ROW,), max_rss_bytes=GB, asked_bytes=4 * GB)),
    "slurm_killed": ("unknown", slurm(killed=(ROW,)), slurm()),
    "slurm_completed": ("likely", slurm(own_state="COMPLETED"), slurm(own_state="FAILED")),
    "not_over": ("likely", slurm(state="PENDING"), {"has_run": True}),
    "slurm_failed": ("likely", slurm(ended_by=replace(ROW, exit_signal=0)), {"end": "error"}),
    "slurm_notes": ("certain", slurm(has_max_rss=True), slurm()),
    "asked_to_stop": ("certain", KILLED | {"signal": "SIGTERM", "asked_by": "SIGTERM"},
        {"signal": "SIGSEGV"}),
    "out_of_time": ("certain", KILLED | {"timed_out_by": "timeout"}, {"timed_out_by": ""}),
    "killed_from_outside": ("certain", KILLED | IN_CGROUP | {"kills": "none", "peak_share": 0.5},
                            {"kills": "counted"}),
    "killed_by_unknown": ("unknown", KILLED, {"limit_at": "cgroup"}),
    **{kind: ("likely", {"end": "log only", **said(kind)}, {"end": "ok"})
       for kind in ("container_oom", "memory_daemon", "manager_poll", "manager_timeout")},
    "gpu_full": ("certain", gpu(asked=GB, total=16 * GB, allocated=15 * GB), {"end": "ok"}),
    "shm_full": ("certain", error("shm_full") | {"shared": FULL_SHM}, {"error": OwnError()}),
    "truncated_file": ("likely", KILLED | {"signal": "SIGBUS",
        "shared": SharedMemory(full=0.1, total_bytes=GB)},
                       {"signal": "SIGKILL"}),
    "bus_error": ("unknown", KILLED | {"signal": "SIGBUS"}, {"shared": FULL_SHM}),
    "disk_full": ("certain", error("disk_full", names_file=True), {"error": OwnError("exception", "x")}),
    "refused_by_rlimit": ("certain", error("memory_error") | {"rlimits": ("RLIMIT_AS is 2 GB",)},
        {"rlimits": ()}),
    "memory_refused": ("certain", error("memory_error"), {"rlimits": ("RLIMIT_AS is 2 GB",)}),
    "pinned_memory": ("likely", error("pinned_memory"), {"error": OwnError("gpu_oom", "x")}),
    "worker_killed_for_memory": ("certain", error("worker_killed") | {"kills": "counted"}, {"kills": "none"}),
    "worker_killed": ("likely", error("worker_killed"), {"kills": "counted"}),
    "worker_killed_by_unknown": ("unknown", error("worker_killed") | {"kills": "no counter"},
        {"kills": "none"}),
    "worker_died": ("likely", error("worker_died"), {"error": OwnError("exception", "x")}),
    "ended_by_signal": ("likely", KILLED | {"signal": "SIGSEGV"}, {"signal": "SIGKILL"}),
    "failed": ("likely", FAILED, {"end": "ok", "exit_code": 0}),
    "running": ("likely", {"end": "running"}, {"end": "lost"}),
    "ended_well": ("certain", {"end": "ok"}, {"end": "error"}),
    "lost": ("unknown", {"end": "lost"}, {"end": "running"}),
    "no_evidence": ("certain", {"end": "no evidence"}, {"end": "lost"}),
    "neighbours": ("likely", COUNTED | {"neighbours": Neighbours(0.6)}, {"neighbours": Neighbours(0.1)}),
    "copy_on_write": ("likely", COUNTED | {"workers": FORKED}, {"workers": replace(FORKED, copied_bytes=0)}),
    "stale_files": ("unknown", COUNTED | {"shared": SharedMemory(before_bytes=GB, total_bytes=GB)},
                    {"shared": SharedMemory(total_bytes=GB)}),
    "prefetch": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": replace(SHARED, is_of_workers=True)},
                 {"shared": SHARED}),
    "shared_memory": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": SHARED},
        {"shared": SharedMemory()}),
    "workers": ("likely", COUNTED | {"parts": Parts(u=GB), "workers": SPAWNED}, {"workers": FORKED}),
    "private_writes": ("likely", COUNTED | {"rise": RISE, "files": replace(FILE, at_assignment=True)},
                       {"files": FILE}),
    "whole_file": ("likely", COUNTED | {"rise": RISE, "files": FILE},
        {"files": replace(FILE, cache_per_anon=9.0)}),
    "page_tables": ("likely", COUNTED | {"parts": Parts(u=GB, page_tables=GB // 2)}, {"parts": Parts(u=GB)}),
    "too_small_from_the_start": ("likely", COUNTED | {"needed_bytes": 2 * GB}, {"has_made_a_step": True}),
    "leak": ("likely", {"leak": Leaking("1 MB a step", None, "line", "likely")}, {"leak": None}),
    "kernel_memory": ("unknown", COUNTED | {"parts": Parts(u=GB, kernel=GB // 2)},
                      {"parts": Parts(u=GB, kernel=GB // 2, page_tables=GB // 2)}),
    "growth": ("likely", COUNTED | {"rise": RISE, "rose_by": "anon"}, {"kills": "none", "nearness": "far"}),
    "thrash": ("certain", {"pressure": PressureSigns(refaulted_bytes_per_s=8.0 * MB, stalled_share=0.5)},
               {"pressure": PressureSigns()}),
    "throttled": ("likely", {"pressure": PressureSigns(high_events=1000)},
                  {"pressure": PressureSigns(high_events=9)}),
    "cache_at_limit": ("certain", IN_CGROUP | {"peak_share": 0.2, "pressure": PressureSigns(usage_share=1.0)},
                       {"kills": "counted"}),
    "rss_above_limit": ("likely", IN_CGROUP | {"peak_share": 0.2,
                        "pressure": PressureSigns(rss_bytes=3 * GB, rss_files_bytes=3 * GB)},
                        {"peak_share": 0.95}),
}  # fmt: skip
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "neighbours": ("machine_full", COUNTED | {"limit_at": "host", "peak_of_host": 0.2}),
    "leak": ("gpu_full", gpu() | {"gpu_leak_bytes": MB}),
    "neighbours of the GPU": ("gpu_full", gpu(total=16 * GB, others=12 * GB)),
    "fragmentation": ("gpu_full", gpu(asked=GB, unallocated=2 * GB, total=16 * GB)),
    "size": ("gpu_full", gpu(asked=20 * GB, total=16 * GB)),
    "growth": ("gpu_full", gpu(asked=GB, total=16 * GB, allocated=15 * GB)),
    "None": ("gpu_full", gpu()),
}
"""Causes of rows that choose one."""


def test_every_row_has_a_case_and_a_description() -> None:
    assert set(CASES) == {row.name for row in TABLE}
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert all(row.sign and (row.verdict or row.cause or row.shows) for row in TABLE)
    assert {word for row in TABLE for word in row.advice.split()} <= set(ADVICE)
    known = {*LINES, *SENTENCES, *(pattern.kind for pattern in MANAGERS), "before_end"}
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
        cause = "cause by its evidence" if callable(row.cause) else row.cause
        rows.append(
            f"| `{row.name}` | {' '.join(filter(None, (row.verdict, cause))) or 'a note'} | {row.sign} |\n"
        )
    head = "| row | says | condition |\n|---|---|---|\n"
    page, table = DOCS.read_text(), head + "".join(rows)
    begin = page.index(head)
    end = page.find("\n\n", begin)
    if request.config.getoption("--update-golden"):
        DOCS.write_text(page[:begin] + table.rstrip("\n") + (page[end:] if end >= 0 else "\n"))
    else:
        assert table.rstrip("\n") == page[begin : end if end >= 0 else None].rstrip("\n")
