"""Record deaths: let cases die for real, and keep their evidence and the answer of `explain` in tests/golden.

    python -m tests.memory.deaths.record               # all cases: half an hour, as root
    python -m tests.memory.deaths.record oom_main ...  # these alone; the other recordings stay
    python -m tests.memory.deaths.record --answers     # no deaths: new answers on the old evidence

A recording replaces the one of the same name only if the case came out as its author meant and the answer is
right. Cases of cgroup v2 need the guest (`python -m tests.memory.deaths.guest install`), those of Slurm a
cluster (`slurm/local_cluster.sh install`). Review `git diff tests/golden/deaths.json` afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memory.explain.evidence.run_facts import FRESH_S
from tests.local_slurm import Cluster, NoCluster, cluster
from tests.memory.deaths.cases import BLIND, Case, read_cases
from tests.memory.deaths.cgroups import NoCgroup, version_here
from tests.memory.deaths.guest import NoGuest, run_in_guest
from tests.memory.deaths.harness import differences, run_case
from tests.memory.deaths.recorded import (
    answer_of,
    ask_slurm,
    case_of,
    keep,
    pack,
    replay,
    unpack,
    write_answers,
)
from tests.memory.deaths.slurm import interfere, result, submit

ALSO_V2 = (
    "oom_worker",
    "oom_copy_on_write",
    "parent_limit",
    "ok_map_ten_times_the_limit",
    "ok_neighbour_cgroup_killed",
)
"""Cases in which v1 and v2 count, name or pass on differently: recorded on both."""
_AT_A_TIME = 3
"""Jobs: most of their time is waiting."""
_AS_LIVE = ("verdict", "cause", "victim", "near_limit", "rules")
Failed = dict[str, str]


def record(cases: list[Case], place: Path) -> Failed:
    """Make a folder in `place` for each case. Returns the reason for each that has none, by name."""
    here = [case for case in cases if not case.slurm and ("v2" not in case.needs or version_here() == 2)]
    failed: Failed = {}
    for case in here:
        failed |= _in_cgroup(case, place)
    if version_here() != 2:
        names = [case.name for case in cases if "v2" in case.needs or case.name in ALSO_V2]
        failed |= _in_guest(names, place) if names else {}
    jobs = [case for case in cases if case.slurm]
    polled = [case for case in jobs if "poll" in case.needs]
    failed |= _as_jobs("cgroup", [case for case in jobs if case not in polled], place)
    return failed | _as_jobs("poll", polled, place)


def _in_cgroup(case: Case, place: Path) -> Failed:
    with tempfile.TemporaryDirectory() as folder:
        try:
            ran = run_case(
                case, Path(folder) / case.name, then=lambda ran: keep(case, ran.run, place / case.name)
            )
        except (NoCgroup, OSError, subprocess.SubprocessError) as error:
            return {case.name: str(error)}
    if ran.misfire():
        shutil.rmtree(place / case.name)
        return {case.name: ran.misfire()}
    return _checked(place / case.name, ran.explanation)


def _in_guest(names: list[str], place: Path) -> Failed:
    failed: Failed = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = run_in_guest(names, timeout_s=3600, evidence=Path(folder) / "evidence")
        except NoGuest as error:
            return dict.fromkeys(names, str(error))
        for each in found:
            name = f"{each['name']}@v2" if each["name"] in ALSO_V2 else each["name"]
            if each["misfire"]:
                failed[name] = each["misfire"]
                continue
            shutil.copytree(Path(folder) / "evidence" / each["name"], place / name)
            failed |= _checked(place / name, each["explanation"])
    return failed


def _as_jobs(limits: str, cases: list[Case], place: Path) -> Failed:
    if not cases:
        return {}
    failed: Failed = {}
    alone = [case for case in cases if "alone" in case.needs]
    try:
        with cluster(limits) as where:
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                together = [case for case in cases if case not in alone]
                for each in threads.map(lambda case: _as_job(where, case, place), together):
                    failed |= each
            for case in alone:
                failed |= _as_job(where, case, place)
                where.script("start")  # brings a killed node back
    except NoCluster as error:
        failed |= {case.name: str(error) for case in cases}
    return failed


def _as_job(where: Cluster, case: Case, place: Path) -> Failed:
    with tempfile.TemporaryDirectory() as folder:
        try:
            submitted = submit(where, case, Path(folder) / case.name)
            interfere(where, submitted)
            ran = result(where, submitted)
        except (TimeoutError, RuntimeError) as error:
            return {case.name: str(error)}
        keep(case, ran.run, place / case.name, ask_slurm(submitted.job, where.variables))
    return _checked(place / case.name, ran.explanation)


def _checked(folder: Path, live: dict[str, object]) -> Failed:
    """Remove a recording whose answer is wrong or not that of the live death. Returns the reason."""
    if not (folder / "run" / "outcome.json").exists():
        time.sleep(FRESH_S + 1)  # until then its files look like those of a run that is alive
    found = replay(folder).to_json()
    wrong = differences(case_of(folder), found)
    if live:
        then, now = answer_of(live), answer_of(found)
        wrong += [f"{key} {now[key]}, was {then[key]}" for key in _AS_LIVE if now[key] != then[key]]
    if wrong:
        shutil.rmtree(folder)
        return {folder.name: "; ".join(wrong)}
    print(f"{folder.name}: {found['verdict']}, {found['cause']}", flush=True)
    return {}


def _with_answers(folder: Path) -> Iterator[str]:
    """Write the answers; yields what is wrong with them."""
    answers = {}
    for each in sorted(folder.iterdir()):
        found = replay(each).to_json()
        answers[each.name] = answer_of(found)
        yield from (f"{each.name}: {wrong}" for wrong in differences(case_of(each), found))
    write_answers(answers)


def main(arguments: list[str]) -> int:
    os.environ["TZ"] = "UTC"
    time.tzset()
    cases = [*read_cases(), *read_cases(BLIND)]
    wanted = [case for case in cases if case.name in arguments] if arguments else cases
    if unknown := set(arguments) - {case.name for case in cases} - {"--answers"}:
        print(f"no case {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        old, new = Path(name) / "old", Path(name) / "new"
        old.mkdir()
        new.mkdir()
        unpack(old)
        failed = {} if arguments == ["--answers"] else record(wanted, new)
        for each in new.iterdir():
            shutil.rmtree(old / each.name, ignore_errors=True)
            each.rename(old / each.name)
        if any(True for _ in old.iterdir()) and arguments != ["--answers"]:
            pack(old)
        wrong = list(_with_answers(old))
    for case_name, why in failed.items():
        print(f"not recorded: {case_name}: {why}", file=sys.stderr)
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
