"""What is found in each layout of tests/golden/kernels: the limit, where it stands, U, what is not known."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import snapshot
from memory.measure.pressure import read_pressure
from memory.show.here_screen import here_screen
from memory.show.machine_details import Details, read_details
from memory.show.screen import draw
from tests.golden_text import Golden
from tests.searched import examples

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels"
MB, GB = 1 << 20, 1 << 30
PID = 4_000_000


@dataclass
class Found:
    """u_mb: U in MB. parts_mb: anon, shmem, kernel of the cgroup. job: Slurm's
    id of it, as the cgroup's path tells it. high: memory.high and where it stands.
    """

    limit_bytes: int | None
    limit_at: str | None
    u_mb: float | None
    parts_mb: tuple[float | None, float | None, float | None] | None = None
    scope: str = "job"
    events: dict[str, int] = field(default_factory=dict)
    job: str | None = None
    high: tuple[int, str] | None = None


EXPECTED = {
    "v1-linux-6.18-recorded": Found(
        256 * MB, "/slurm/uid_1000/job_42", 43171840 / MB + 8 + 2981888 / MB, job="42",
        events={"oom_kill": 0, "failcnt": 0},
    ),
    "v2-linux-6.1-recorded": Found(
        192 * MB, "/system.slice/slurmstepd.scope/job_42/step_0/user",
        (43200512 + 20971520 + 544768 - 160904) / MB, job="42",
        events={"oom_kill": 0, "max": 0, "oom_group_kill": 0},
    ),
    "slurm-18.08-v1-linux-3.10": Found(
        2 * GB, "/slurm/uid_1000/job_42", 711, (700, None, 11), job="42",
        events={"failcnt": 42},
    ),
    "slurm-22.05-v1-recorded": Found(
        300 * MB, "/slurm_n1/uid_0/job_1", (50331648 + 1019904) / MB, job="1",
        events={"oom_kill": 0, "failcnt": 0},
    ),
    "slurm-22.05-v1": Found(
        2 * GB, "/slurm/uid_1000/job_42", 741, (700, 30, 11), job="42",
        events={"oom_kill": 1, "failcnt": 42},
    ),
    "slurm-23.11-v1-batch": Found(
        2 * GB, "/slurm_n01/uid_1000/job_42", 741, (700, 30, 11), job="42",
        events={"oom_kill": 1, "failcnt": 42},
    ),
    "slurm-24.11-v1-no-limit": Found(64000 * MB, "host", 930, (900, 10, 20)),
    "slurm-22.05-v2": Found(
        2 * GB, "/system.slice/n01_slurmstepd.scope/job_42", 755, (720, 30, 5), job="42",
        events={"oom_kill": 1, "max": 42},
    ),
    "slurm-23.11-v2-batch": Found(
        2 * GB, "/system.slice/slurmstepd.scope/job_42", 755, (720, 30, 5), job="42",
    ),
    "slurm-24.11-v2": Found(
        1536 * MB, "/system.slice/slurmstepd.scope/job_42/step_0/user", 735, (700, 30, 5), job="42",
        events={"oom_kill": 1, "oom_group_kill": 0},
    ),
    "slurm-23.02-v2-enroot": Found(192000 * MB, "host", 735, (700, 30, 5), job="42"),
    "v2-systemd-user": Found(
        32000 * MB, "host", 319, (310, 4, 5), high=(8 * GB, "/user.slice/user-1000.slice")
    ),
    "v2-linux-5.4-service": Found(4 * GB, "/system.slice/train.service", 321, (310, 4, 7)),
    "hybrid-memory-on-v1": Found(GB, "/system.slice/train.service", 320, (310, 4, 6)),
    "hybrid-memory-on-v2": Found(GB, "/system.slice/train.service", 320, (310, 4, 6)),
    "docker-v1": Found(GB, "/docker/3f4a1b", 320, (310, 4, 6)),
    "docker-v2": Found(GB, "/", 319, (310, 4, 5)),
    "docker-v2-host-namespace": Found(GB, "/system.slice/docker-3f4a1b.scope", 319, (310, 4, 5)),
    "kubernetes-v1": Found(GB, "above /kubepods/burstable/pod7/c1", 320, (310, 4, 6)),
    "podman-rootless-v2": Found(
        GB, "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-9.scope", 319, (310, 4, 5)
    ),
    "no-memory-controller": Found(8000 * MB, "host", 300, scope="process tree"),
    "no-cgroups-mounted": Found(8000 * MB, "host", 300, scope="process tree"),
    "v2-garbage": Found(GB, "/job", 310, (310, None, None)),
    "v1-missing-counters": Found(GB, "/job", 310, (310, None, None)),
}  # fmt: skip


def text_of(details: Details) -> str:
    return "\n".join(text for text, _ in draw(here_screen(details), everything=True))


def test_every_tree_is_expected_and_has_its_source_named() -> None:
    names = {path.stem for path in GOLDEN.glob("*.txt")}
    assert names == set(EXPECTED)
    readme = (GOLDEN / "README.md").read_text()
    assert [name for name in sorted(names) if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_limit_and_u(make_tree, tmp_path: Path, name: str) -> None:
    expected, tree = EXPECTED[name], make_tree(tmp_path)
    tree.unpack(GOLDEN / f"{name}.txt")
    found = snapshot(PID, tmp_path)
    assert (found.limit_bytes, found.limit_at, found.scope) == (
        expected.limit_bytes, expected.limit_at, expected.scope,
    )  # fmt: skip
    assert found.unreclaimable_bytes == expected.u_mb * MB
    if expected.parts_mb is not None:
        parts = (found.job.anon_bytes, found.job.shmem_bytes, found.job.kernel_bytes)
        assert tuple(part if part is None else part / MB for part in parts) == expected.parts_mb
    events = (found.job.events if found.job else None) or {}
    assert {key: events.get(key) for key in expected.events} == expected.events
    assert (found.job and found.job.high_bytes, found.job and found.job.high_at) == (
        expected.high or (None, None)
    )
    details = read_details(PID, str(tmp_path))
    assert (details.slurm.job_id if details.slurm else None) == expected.job


def test_what_is_not_known(make_tree, tmp_path: Path, golden: Golden) -> None:
    found: dict[str, list[str]] = {}
    for name in EXPECTED:
        make_tree(tmp_path / name).unpack(GOLDEN / f"{name}.txt")
        for note in read_details(PID, str(tmp_path / name)).not_known:
            found.setdefault(note, []).append(name)
    golden.text("\n\n".join(f"{note}:\n  {', '.join(names)}" for note, names in found.items()))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_screen_and_its_json_hold_in_each_of_them(make_tree, tmp_path: Path, name: str) -> None:
    make_tree(tmp_path).unpack(GOLDEN / f"{name}.txt")
    for pid in (PID, PID + 5):  # one that is gone
        details = read_details(pid, str(tmp_path))
        text = text_of(details)
        assert "None" not in text
        assert json.loads(json.dumps(details.to_json()))["version"] == 1
    if EXPECTED[name].limit_at != "host":
        details = read_details(PID, str(tmp_path))
        assert EXPECTED[name].limit_at.rpartition("/")[2] in text_of(details)


def test_psi_refaults_swap_and_page_tables_of_v2(make_tree, tmp_path: Path) -> None:
    make_tree(tmp_path).unpack(GOLDEN / "slurm-24.11-v2.txt")
    job = snapshot(PID, tmp_path).job
    assert (job.stalled_us, job.some_stalled_us) == (2_000_000, 5_000_000)
    assert (job.stalled_percent, job.some_stalled_percent) == (1.25, 2.5)
    assert (job.refaults, job.anon_refaults, job.major_faults) == (900, 3, 77)
    assert (job.page_tables_bytes, job.swap_bytes) == (2 * MB, 0)


def test_refaults_before_they_were_split_and_on_v1(make_tree, tmp_path: Path) -> None:
    make_tree(tmp_path / "a").unpack(GOLDEN / "v2-linux-5.4-service.txt")
    make_tree(tmp_path / "b").unpack(GOLDEN / "slurm-22.05-v1.txt")
    assert snapshot(PID, tmp_path / "a").job.refaults == 5000
    assert snapshot(PID, tmp_path / "b").job.refaults == 1500
    assert snapshot(PID, tmp_path / "b").job.major_faults == 321


def test_every_level_with_its_limits(make_tree, tmp_path: Path) -> None:
    make_tree(tmp_path).unpack(GOLDEN / "slurm-24.11-v2.txt")
    levels = read_details(PID, str(tmp_path)).limits
    assert [
        (level.path.rpartition("/")[2], level.limit_bytes, level.swap_limit_bytes) for level in levels
    ] == [
        ("task_0", None, None),
        ("user", 1536 * MB, 0),
        ("step_0", None, None),
        ("job_42", 2 * GB, 0),
        ("slurmstepd.scope", None, None),
        ("system.slice", None, None),
    ]
    assert [level.own_kills for level in levels][:2] == [1, 0]


def test_a_recorded_process_and_its_forked_child(make_tree, tmp_path: Path) -> None:
    make_tree(tmp_path).unpack(GOLDEN / "v1-linux-6.18-recorded.txt")
    found = snapshot(PID, tmp_path, pss=True)
    (child,) = found.workers
    assert (found.main.anon_bytes, child.anon_bytes) == (48496 * 1024, 48496 * 1024)
    assert found.workers_anon_bytes == 0, "all of it is shared since the fork: the cgroup counts it once"
    assert found.main.pss_bytes == 118423 * 1024
    assert found.main.page_tables_bytes == 152 * 1024
    assert found.job.file_bytes == 102760448 - 8388608
    assert found.job.peak_usage_bytes >= found.job.usage_bytes > found.unreclaimable_bytes


@settings(max_examples=examples(80))
@given(garbage=st.one_of(st.binary(max_size=80), st.text(max_size=60).map(str.encode)))
def test_garbage_anywhere_is_unknown_never_an_error(tmp_path_factory, make_tree, garbage: bytes) -> None:
    tree = make_tree(tmp_path_factory.mktemp("garbage"))
    tree.unpack(GOLDEN / "docker-v2.txt")
    for path in (
        "sys/fs/cgroup/memory.pressure", "sys/fs/cgroup/memory.high", "sys/fs/cgroup/memory.swap.max",
        "sys/fs/cgroup/memory.oom.group", "sys/fs/cgroup/cgroup.procs", "proc/pressure/memory",
        f"proc/{PID}/limits", f"proc/{PID}/environ", f"proc/{PID}/smaps_rollup", f"proc/{PID}/maps",
        "proc/sys/vm/overcommit_memory", "proc/sys/kernel/osrelease", "proc/meminfo",
    ):  # fmt: skip
        tree.write(path, garbage)
    details = read_details(PID, str(tree.root), pss=True)
    assert details.at.unreclaimable_bytes == 319 * MB
    assert json.loads(json.dumps(details.to_json(), allow_nan=False))
    assert "None" not in text_of(details)


@settings(max_examples=examples(100))
@given(text=st.text(alphabet="somefull avg10=.0123456789\nabc", max_size=120))
def test_garbled_pressure_is_unknown(tmp_path_factory, text: str) -> None:
    path = tmp_path_factory.mktemp("pressure") / "memory"
    path.write_text(text)
    for value in dataclasses.astuple(read_pressure(str(path))):
        assert value is None or value >= 0


def test_without_proc_and_sys_fewer_facts_and_it_says_so(tmp_path: Path, golden: Golden) -> None:
    details = read_details(root=str(tmp_path))
    golden.text("\n".join(details.not_known))
    assert [note for note in details.not_known if note not in text_of(details)] == []
    assert details.processes[0].rss_bytes
