"""The table of rows: for each, signals on which it holds, and a change to them on which it does not."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.evidence import Evidence
from memory.explain.decide import find
from memory.explain.evidence.files_read import FilesRead
from memory.explain.evidence.gpu_message import GpuMessage
from memory.explain.evidence.leaks_seen import Leaking
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import Neighbours, Victim, Workers
from memory.explain.evidence.rise import Rise
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import SlurmRows
from memory.explain.rules import TABLE
from memory.explain.signals import Parts, PressureSigns, Said, SharedMemory, Signals
from memory.sacct import Row as SlurmRow
from tests.memory.deaths.recorded import read_answers

MB, GB = 1 << 20, 1 << 30
ROWS = {row.name: row for row in TABLE}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "memory-explain.md"

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
SHARED = SharedMemory(share=0.8, rose_bytes=GB)
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
    "machine_filled_by_others": ("certain", COUNTED | {"limit_at": "host", "host_is_short": True,
    "peak_of_host": 0.2},
                                 {"peak_of_host": 0.9}),
    "machine_full": ("likely", COUNTED | {"limit_at": "host"}, {"kills": "none"}),
    "killed_as_group": ("certain", COUNTED | {"group_kills": 1}, {"group_kills": 0}),
    "killed_in_cgroup": ("certain", COUNTED, {"kills": "none"}),
    "named_to_supervisor": ("certain", KILLED | {"kernel_named": "cgroup"}, {"kernel_named": ""}),
    "named_to_supervisor_host": ("certain", KILLED | {"kernel_named": "host"}, {"kernel_named": ""}),
    "named_in_kernel_log": ("likely", {"end": "log only", **said("kernel_cgroup")}, {"said": {}}),
    "killed_above": ("likely", KILLED | {"parent_killed": True}, {"signal": "SIGTERM"}),
    "killed_uncounted": ("likely", KILLED | IN_CGROUP, {"last_share": 0.5}),
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
    "asked_to_stop": ("certain", KILLED | {"signal": "SIGTERM", "asked_by": "SIGTERM"},
    {"signal": "SIGSEGV"}),
    **{f"out_of_time_{name.replace(' ', '_')}": (sure, KILLED | {"timed_out_by": name}, {"timed_out_by": ""})
       for name, sure in (("timeout", "certain"), ("timeout by signal", "likely"), ("timer", "likely"),
                          ("timeout in a script", "unknown"), ("cpu limit", "likely"), ("job end",
                              "likely"))},
    "killed_from_outside": ("certain", KILLED | IN_CGROUP | {"kills": "none", "peak_share": 0.5},
    {"kills": "counted"}),
    "killed_by_unknown": ("unknown", KILLED, {"limit_at": "cgroup"}),
    "sigkill_in_log": ("unknown", {"end": "log only", **said("sigkill")}, {"end": "ok"}),
    "exit_minus_9": ("unknown", FAILED | {"kills": "no counter", "exit_code": 247}, {"kills": "none"}),
    **{kind: ("likely", {"end": "log only", **said(kind)}, {"end": "ok"})
       for kind in ("container_oom", "memory_daemon", "manager_poll", "manager_timeout")},
    "gpu_leak": ("certain", gpu() | {"gpu_leak_bytes": MB}, {"gpu_leak_bytes": 0}),
    "gpu_neighbours": ("certain", gpu(total=16 * GB, others=12 * GB), {"end": "ok"}),
    "gpu_fragmentation": ("certain", gpu(asked=GB, unallocated=2 * GB, total=16 * GB), {"end": "ok"}),
    "gpu_size": ("certain", gpu(asked=20 * GB, total=16 * GB), {"end": "ok"}),
    "gpu_growth": ("certain", gpu(asked=GB, total=16 * GB, allocated=15 * GB), {"end": "ok"}),
    "gpu_unknown": ("certain", gpu(), {"end": "ok"}),
    "shm_full_in_worker": ("likely", error("worker_bus"), {"end": "ok"}),
    "shm_full": ("certain", error("shm_full") | {"shared": FULL_SHM}, {"error": OwnError()}),
    "truncated_file": ("likely", KILLED | {"signal": "SIGBUS", "shared": SharedMemory(full=0.1,
    total_bytes=GB)},
                       {"signal": "SIGKILL"}),
    "bus_error": ("unknown", KILLED | {"signal": "SIGBUS"}, {"shared": FULL_SHM}),
    "disk_full": ("certain", error("disk_full", names_file=True), {"error": OwnError("exception", "x")}),
    "refused_by_rlimit": ("certain", error("memory_error") | {"rlimits": ("RLIMIT_AS is 2 GB",)},
    {"rlimits": ()}),
    "heap_java": ("certain", error("heap_java"), {"error": OwnError("heap_node", "x")}),
    "heap_node": ("certain", error("heap_node"), {"error": OwnError("heap_java", "x")}),
    "maps_used_up": ("certain", error("maps_used_up"), {"error": OwnError("memory_error", "x")}),
    "memory_refused": ("certain", error("memory_error"), {"rlimits": ("RLIMIT_AS is 2 GB",)}),
    "pinned_memory": ("likely", error("pinned_memory"), {"error": OwnError("gpu_oom", "x")}),
    "worker_killed_for_memory": ("certain", error("worker_killed") | {"kills": "counted"}, {"kills": "none"}),
    "worker_killed": ("likely", error("worker_killed"), {"kills": "counted"}),
    "worker_killed_by_unknown": ("unknown", error("worker_killed") | {"kills": "no counter"},
    {"kills": "none"}),
    "worker_died": ("likely", error("worker_died"), {"error": OwnError("exception", "x")}),
    "crashed": ("likely", KILLED | {"signal": "SIGSEGV"}, {"signal": "SIGKILL"}),
    "other_signal": ("certain", KILLED | {"signal": "SIGPIPE"}, {"signal": "SIGTERM"}),
    "failed": ("likely", FAILED, {"end": "ok", "exit_code": 0}),
    "running": ("likely", {"end": "running"}, {"end": "lost"}),
    "ended_well": ("certain", {"end": "ok"}, {"end": "error"}),
    "lost": ("unknown", {"end": "lost"}, {"end": "running"}),
    "no_evidence": ("certain", {"end": "no evidence"}, {"end": "lost"}),
    "limit_above": ("certain", COUNTED | {"limit_is_above": True}, {"limit_is_above": False}),
    "killed_next_to_it": ("unknown", FAILED | {"parent_killed": True}, {"signal": "SIGKILL"}),
    "neighbours": ("likely", COUNTED | {"neighbours": Neighbours(0.6)}, {"neighbours": Neighbours(0.1)}),
    "copy_on_write": ("likely", COUNTED | {"workers": FORKED}, {"workers": replace(FORKED, copied_bytes=0)}),
    "stale_files": ("unknown", COUNTED | {"shared": SharedMemory(before_bytes=GB, total_bytes=GB)},
                    {"shared": SharedMemory(total_bytes=GB)}),
    "prefetch": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": replace(SHARED, is_of_workers=True)},
                 {"shared": SHARED}),
    "shared_memory": ("likely", COUNTED | {"parts": Parts(u=GB), "shared": SHARED},
    {"shared": SharedMemory()}),
    "workers": ("likely", COUNTED | {"parts": Parts(u=GB), "workers": SPAWNED}, {"workers": FORKED}),
    "order_as_list": ("likely", COUNTED | {"rise": RISE, "files": FilesRead(at_order=True)},
    {"files": FilesRead()}),
    "private_writes": ("likely", COUNTED | {"rise": RISE, "files": replace(FILE, at_assignment=True)},
    {"files": FILE}),
    "whole_file": ("likely", COUNTED | {"rise": RISE, "files": FILE}, {"files": replace(FILE,
    cache_per_anon=9.0)}),
    "page_tables": ("likely", COUNTED | {"parts": Parts(u=GB, page_tables=GB // 2)}, {"parts": Parts(u=GB)}),
    "too_small_from_the_start": ("likely", COUNTED | {"needed_bytes": 2 * GB}, {"has_made_a_step": True}),
    "leak": ("likely", {"leak": Leaking("1 MB a step", None, "line", "likely")}, {"leak": None}),
    "kernel_memory": ("unknown", COUNTED | {"parts": Parts(u=GB, kernel=GB // 2)},
                      {"parts": Parts(u=GB, kernel=GB // 2, page_tables=GB // 2)}),
    "growth": ("likely", COUNTED | {"rise": RISE, "rose_by": "anon"}, {"nearness": "far"}),
    "growth_unseen": ("likely", COUNTED, {"rise": RISE}),
    "thrash": ("certain", {"pressure": PressureSigns(refaulted_bytes_per_s=8.0 * MB, stalled_share=0.5)},
               {"pressure": PressureSigns()}),
    "swapped": ("likely", {"pressure": PressureSigns(swap_rose_bytes=GB)}, {"pressure": PressureSigns()}),
    "throttled": ("likely", {"pressure": PressureSigns(high_events=1000)},
    {"pressure": PressureSigns(high_events=9)}),
    "cache_at_limit": ("certain", IN_CGROUP | {"peak_share": 0.2, "pressure": PressureSigns(usage_share=1.0)},
                       {"kills": "counted"}),
    "rss_files": ("certain", IN_CGROUP | {"peak_share": 0.2, "pressure": PressureSigns(rss_bytes=3 * GB,
    rss_files_bytes=3 * GB)},
                  {"peak_share": 0.95}),
    "rss_shared": ("certain", IN_CGROUP | {"peak_share": 0.2, "pressure": PressureSigns(rss_bytes=3 * GB,
    rss_twice_bytes=3 * GB)},
                   {"peak_share": 0.95}),
    "one_of_several": ("certain", slurm(other_tasks=2), slurm()),
    "max_rss": ("certain", slurm(has_max_rss=True), slurm()),
    "requeued": ("certain", slurm(starts_before=1), slurm()),
}  # fmt: skip


def test_every_row_has_a_case_and_a_description() -> None:
    assert set(CASES) == {row.name for row in TABLE}
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert all(row.sign and (row.verdict or row.cause or row.shows or row.more) for row in TABLE)


@pytest.mark.parametrize("name", CASES)
def test_row_holds_on_its_signals_alone(name: str) -> None:
    confidence, signals, other = CASES[name]
    facts = RunFacts(Evidence(Path(os.devnull)))
    holds = Signals(facts=facts, victim=Victim(True, 7, "python"), **signals)
    found = ROWS[name].find(holds)
    assert found is not None
    assert found.confidence == confidence
    assert found.says
    assert ROWS[name].find(replace(holds, **other)) is None


def test_no_row_fails_on_absent_evidence() -> None:
    assert find(Signals(facts=RunFacts(Evidence(Path(os.devnull)))))[1] == []


def test_rows_of_recordings_are_in_the_table() -> None:
    fired = {rule for answer in read_answers().values() for rule in answer["rules"]}
    assert fired <= set(ROWS)


def test_docs_list_every_row_with_its_sign() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", DOCS.read_text(), re.MULTILINE))
    assert listed == {row.name: row.sign for row in TABLE}
