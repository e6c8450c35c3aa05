"""Whatever the signals say together, a verdict is no surer than its witnesses, and counters win over logs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.accounting.sacct import Row
from memory.explain import VERDICTS
from memory.explain.decide import choose_end, find
from memory.explain.evidence.growth import Leaking, Rise, leak_seen
from memory.explain.evidence.log_patterns import ERRORS, MANAGERS
from memory.explain.evidence.own_error import OwnError
from memory.explain.evidence.process_memory import Neighbours, Victim, Workers
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import SlurmRows
from memory.explain.signals import ASKING, Parts, Said, SharedMemory, Signals
from memory.explain.verdict.explanation import CONFIDENCES, Finding
from memory.record.evidence import Evidence
from tests.searched import examples

GB = 1 << 30
FACTS = RunFacts(Evidence(Path(os.devnull)))
SIGNAL = st.sampled_from(["", "SIGKILL", "SIGSEGV", "SIGBUS", "SIGXCPU", *ASKING])
SHARES = st.sampled_from([0.0, 0.3, 0.84, 0.96, 1.0])
AMOUNTS = st.sampled_from([0, 64 << 20, GB, 4 * GB])
SAID = st.dictionaries(
    st.sampled_from(sorted({row.kind for row in MANAGERS})),
    st.builds(Said, st.just("line"), st.just("log.txt"), st.just("python"), st.booleans()),
    max_size=3,
)
KILLS = st.sampled_from(["kernel_cgroup", "kernel_host", "slurm_oom"]).map(
    lambda kind: {kind: Said("line", "log.txt")}
)
OOM = (Row("42", "0", "OUT_OF_MEMORY"),)
STATES = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "RUNNING"]
ROWS = st.builds(
    Row, st.just("42"), st.none(), st.sampled_from(STATES), exit_code=st.sampled_from([0, 1, 137])
)
SLURM = st.builds(
    SlurmRows, st.just("sacct"), st.sampled_from(STATES), ROWS, st.sampled_from([(), OOM]),
    st.none() | ROWS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.booleans(),
)  # fmt: skip
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "end": st.sampled_from(["running", "waiting", "ok", "error", "signal", "lost", "log only", "unknown"]),
    "exit_code": st.sampled_from([0, 1, 124, 247]),
    "signal": SIGNAL,
    "signal_is_certain": st.booleans(),
    "asked_by": st.sampled_from(["", *ASKING]),
    "state": st.sampled_from(["", "done", "failed", "cancelled"]),
    "timed_out_by": st.sampled_from(["", "timeout", "timeout in a script", "cpu limit"]),
    "kills": st.sampled_from(["no counter", "none", "counted"]),
    "limit_at": st.sampled_from(["cgroup", "host", "unseen", "request", "unknown"]),
    "limit_bytes": AMOUNTS,
    "limit_hits": st.sampled_from([0, 100]),
    "peak_share": SHARES,
    "last_share": SHARES,
    "nearness": st.sampled_from(["near", "far", "unknown"]),
    "victim": st.none() | st.builds(Victim, st.booleans(), st.just(7), st.just("python")),
    "error": st.builds(OwnError, st.sampled_from(["", "exception", *sorted({row.kind for row in ERRORS})]),
                       st.just("line"), confidence=st.sampled_from(CONFIDENCES)),
    "said": SAID,
    "slurm": st.just(SlurmRows()) | SLURM,
    "parts": st.builds(Parts, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
    "shared": st.builds(SharedMemory, AMOUNTS, SHARES, st.just(2), st.booleans(), AMOUNTS, SHARES, AMOUNTS),
    "workers": st.builds(Workers, st.integers(0, 5), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.booleans()),
    "neighbours": st.builds(Neighbours, AMOUNTS, SHARES, AMOUNTS, AMOUNTS),
    "rise": st.none() | st.builds(Rise, st.just(0), AMOUNTS, st.just(0), st.just(9), AMOUNTS, st.just(50)),
    "leak": st.none() | st.just(Leaking("1 MB a second", "line", is_by_time=True)),
    "rose_by": st.sampled_from(["", "anon", "shmem", "kernel", "locked"]),
    **dict.fromkeys(("has_run", "has_samples", "is_ours", "victim_is_named", "host_is_short"), st.booleans()),
    "rlimits": st.sampled_from([(), ("RLIMIT_AS is 2 GB",)]),
}  # fmt: skip
SIGNALS = st.fixed_dictionaries({}, optional=FIELDS).map(
    lambda values: Signals(FACTS, kill_count=int(values.get("kills") == "counted"), **values)
)


def decided(signals: Signals) -> Finding | None:
    findings, broken = find(signals)
    assert broken == []
    assert all(found.says and found.confidence in CONFIDENCES for found in findings)
    return choose_end(findings)


@settings(max_examples=examples(300))
@given(SIGNALS)
def test_certain_has_a_witness(signals: Signals) -> None:
    """A counter of the kernel, Slurm, or the run's own word: its exit status, its state, its last error."""
    end = decided(signals)
    assert end is None or end.verdict in VERDICTS
    counter = signals.kills in ("none", "counted")
    of_slurm = bool(signals.slurm.source) or any(kind.startswith("slurm") for kind in signals.said)
    own = (
        signals.end in ("ok", "error", "signal")
        or signals.signal_is_certain
        or signals.state
        or signals.signal
    )
    own = own or signals.has_run or signals.timed_out_by
    assert end is None or end.confidence != "certain" or counter or of_slurm or own


@settings(max_examples=examples(300))
@given(SIGNALS)
def test_counted_kill_wins_over_log(signals: Signals) -> None:
    killed = {"end": "signal", "signal": "SIGKILL", "signal_is_certain": True, "asked_by": ""}
    end = decided(replace(signals, kills="counted", kill_count=1, **killed))
    assert end is not None
    assert end.verdict in ("oom_cgroup", "oom_host")


@settings(max_examples=examples(300))
@given(SIGNALS.filter(lambda s: s.end != "lost" and not s.slurm.out_of_memory), KILLS)
def test_no_counted_kill_wins_over_log(signals: Signals, said: dict[str, Said]) -> None:
    """A machine that was short of memory was seen by samples, not by the log."""
    signals = replace(signals, kills="none", kill_count=0, said=said)
    end = decided(signals)
    short = signals.host_is_short and signals.signal == "SIGKILL"
    assert end is None or short or not (end.verdict in ("oom_cgroup", "oom_host") and end.rank >= 2)


def test_reported_leak_has_the_number_of_steps_that_it_was_seen_over() -> None:
    leak = {"is_leak": True, "slope_bytes_per_step": 1 << 20, "since_step": 292}
    record = {"stage": "train", "event": "end", "facts": {"step": 1292}, "leak": leak}
    facts = RunFacts(Evidence(Path(os.devnull)))
    facts.__dict__["records"] = [record]
    found = leak_seen(facts)
    assert found is not None
    assert found.rate == "1.0 MB a step"
    assert "1,000 steps" in found.line
