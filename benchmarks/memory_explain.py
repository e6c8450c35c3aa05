"""Why did it die? `explain` on deaths and on healthy but alarming runs, and what others say of the same.

Runs every case of tests/memory/deaths for real: programs that die, or do well, in a cgroup with a limit. Each
runs twice: in a cgroup here, with a log of RSS by psutil and Lightning's DeviceStatsMonitor beside it, and,
where it needs nothing special, as a job of a real Slurm, of which sacct and seff are asked. `explain` is
right if verdict, cause and victim are; the others give no verdict, so they are asked one thing: did it die of
its memory limit? Cases in tests/memory/deaths/blind were written by one who had not seen the rules; they
are counted apart.

    python benchmarks/memory_explain.py [--only NAME ...] [--without-slurm] [--without-guest] [--no-save]

Needs root and a memory cgroup; `slurm/local_cluster.sh install` and
`python -m tests.memory.deaths.guest install` for the rest. Takes ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.memory_parts.peers import NEVER, Log, Said, import_lightning, sacct, seff
from tests.local_slurm import Cluster, NoCluster, cluster
from tests.memory.deaths.cases import BLIND, PROGRAMS, Case, read_cases
from tests.memory.deaths.cgroups import NoCgroup, version_here
from tests.memory.deaths.guest import NoGuest, run_in_guest
from tests.memory.deaths.harness import Ran, run_case
from tests.memory.deaths.slurm import interfere, result, submit

PEERS = ("psutil", "lightning", "composer", "sacct", "seff")
_ROWS = "JobID,State,ExitCode,MaxRSS,ReqMem,NTasks"


@dataclass
class Asked:
    """A case and what everyone said. right: None where it could not be judged, with `note` on why."""

    case: Case
    right: bool | None = None
    says: str = ""
    wrong: list[str] = field(default_factory=list)
    memory: bool | None = None
    peers: dict[str, Said] = field(default_factory=dict)
    note: str = ""

    @property
    def truth(self) -> bool:
        """Whether the memory limit killed it."""
        return "oom_cgroup" in self.case.verdict

    def take(self, ran: Ran) -> None:
        """What `explain` says."""
        misfire = ran.misfire() if not self.case.slurm else ""
        self._take(ran.explanation, ran.wrong, misfire)

    def _take(self, explanation: dict[str, Any], wrong: list[str], misfire: str) -> None:
        if misfire:
            self.note = misfire.splitlines()[0]
            return
        verdict, cause = explanation.get("verdict"), explanation.get("cause")
        self.says = f"{verdict}, {cause}" if cause not in (None, "none") else str(verdict)
        self.right, self.wrong, self.memory = not wrong, wrong, verdict == "oom_cgroup"

    def take_from_guest(self, found: dict[str, Any]) -> None:
        """The same, of a case that ran in the guest."""
        self._take(found["explanation"], found["wrong"], found["misfire"])

    def to_json(self) -> dict[str, Any]:
        """For the saved result."""
        return {
            "case": self.case.name,
            "what": self.case.what,
            "kind": self.case.kind,
            "should_say": "/".join(self.case.verdict),
            "explain": self.says,
            "right": self.right,
            "wrong": self.wrong,
            "note": self.note,
            "died_of_the_limit": self.truth,
            "peers": {name: {"says": said.says, "memory": said.memory} for name, said in self.peers.items()},
        }


def in_cgroups(asked: list[Asked]) -> None:
    """Those that need no Slurm and no v2, one after another."""
    import_lightning()
    for each in asked:
        log = Log()
        try:
            with tempfile.TemporaryDirectory() as folder:
                each.take(run_case(each.case, Path(folder) / "x", log.of))
        except (NoCgroup, OSError) as error:
            each.note = str(error)
            continue
        each.peers |= {
            "psutil": log.psutil(each.case.limit_mb),
            "lightning": log.lightning(),
            "composer": Said(NEVER["composer"], None),
        }
        print(line_of(each), flush=True)


def as_jobs(asked: list[Asked]) -> None:
    """All that can be, as a job of a real Slurm: sacct and seff of each, `explain` of those made for it."""
    polled = [each for each in asked if "poll" in each.case.needs]
    alone = [each for each in asked if "alone" in each.case.needs]
    together = [each for each in asked if each not in polled + alone]
    with _cluster("cgroup", together + alone) as where:
        if where is not None:
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda each: _job(where, each), together))
            for each in alone:
                _job(where, each)
                where.script("start")
    with _cluster("poll", polled) as where:
        for each in polled if where is not None else []:
            _job(where, each)


@contextmanager
def _cluster(limits: str, asked: list[Asked]) -> Iterator[Cluster | None]:
    with ExitStack() as stack:
        found = None
        if asked:
            try:
                found = stack.enter_context(cluster(limits))
            except NoCluster as error:
                for each in asked:
                    each.note = each.note or str(error)
        yield found


def _job(where: Cluster, each: Asked) -> None:
    made_for_it = bool(each.case.slurm)
    case = each.case if made_for_it else replace(each.case, slurm={"script": "srun {run}"})
    try:
        with tempfile.TemporaryDirectory() as folder:
            submitted = submit(where, case, Path(folder) / "x")
            interfere(where, submitted)
            ran = result(where, submitted)
            told = where.say("sacct", "-P", "-j", submitted.job, "-o", _ROWS)
    except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
        each.note = each.note or str(error)
        return
    if made_for_it:
        each.take(ran)
    head, *lines = [line.split("|") for line in told.splitlines()]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    each.peers |= {"sacct": sacct(rows), "seff": seff(rows)}
    if made_for_it:
        print(line_of(each), flush=True)


def in_guest(asked: list[Asked]) -> None:
    """Those of cgroup v2, where this machine has v1."""
    try:
        told = {found["name"]: found for found in run_in_guest([each.case.name for each in asked])}
    except NoGuest as error:
        for each in asked:
            each.note = str(error)
        return
    for each in asked:
        each.take_from_guest(told[each.case.name])
        print(line_of(each), flush=True)


def line_of(each: Asked) -> str:
    """One line: kind, name, what explain says, right or wrong."""
    mark = {True: "right", False: "WRONG", None: "-"}[each.right]
    says = each.says or each.note[:60]
    return f"{each.case.kind:8}{each.case.name:38}{says:40}{mark:7}{'; '.join(each.wrong)}"


def table(asked: list[Asked]) -> str:
    """A line a case: did it die of its limit, and what would each have one believe."""
    word = {True: "yes", False: "no", None: "-"}
    lines = [
        f"{'died of its limit?':40}{'truth':>7}{'explain':>9}" + "".join(f"{name:>11}" for name in PEERS)
    ]
    for each in asked:
        said = [word[each.peers[name].memory] if name in each.peers else "" for name in PEERS]
        lines.append(
            f"{each.case.name:40}{word[each.truth]:>7}{word[each.memory]:>9}"
            + "".join(f"{answer:>11}" for answer in said)
        )
    return "\n".join(lines)


def score(asked: list[Asked]) -> dict[str, Any]:
    """How many were right; of the others, how they answer the one question, over the cases put to them."""
    judged = [each for each in asked if each.right is not None]
    found: dict[str, Any] = {}
    for kind, word in (("death", "deaths"), ("healthy", "healthy")):
        of_kind = [each for each in judged if each.case.kind == kind]
        found[word] = len(of_kind)
        found[f"{word}_right"] = sum(bool(each.right) for each in of_kind)
    found["false_alarms"] = found["healthy"] - found["healthy_right"]
    found["not_judged"] = {each.case.name: each.note for each in asked if each.right is None}
    answers = {"explain": [(each.truth, each.memory) for each in judged]}
    for name in PEERS:
        answers[name] = [(each.truth, each.peers[name].memory) for each in judged if name in each.peers]
    found["died_of_the_limit"] = {name: _answers(pairs) for name, pairs in answers.items()}
    return found


def _answers(pairs: list[tuple[bool, bool | None]]) -> dict[str, int]:
    return {
        "asked": len(pairs),
        "right": sum(truth == bool(said) for truth, said in pairs),
        "missed": sum(truth and not said for truth, said in pairs),
        "false_alarms": sum(bool(said) and not truth for truth, said in pairs),
    }


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--only", nargs="+", metavar="NAME", help="these cases alone")
    found.add_argument("--without-slurm", action="store_true", help="no sacct, no seff, no deaths in jobs")
    found.add_argument("--without-guest", action="store_true", help="no deaths on cgroup v2")
    found.add_argument("--no-save", action="store_true", help="only print")
    return found


def needs_nothing(case: Case) -> bool:
    """Whether it may as well run as a job: no second process, no mounts, no limits but --mem."""
    special = (
        case.beside,
        case.before,
        case.shm_mb,
        case.parent_limit_mb,
        case.rlimit_as_mb,
        case.run_disk_mb,
    )
    return not any(special) and not case.needs


def main() -> None:
    options = parser().parse_args()
    groups = {
        name: [Asked(case) for case in read_cases(folder) if not options.only or case.name in options.only]
        for name, folder in (("known", PROGRAMS), ("blind", BLIND))
    }
    everyone = [each for group in groups.values() for each in group]
    elsewhere = "" if version_here() == 2 else "v2"
    of_guest = [each for each in everyone if elsewhere in each.case.needs or "guest" in each.case.needs]
    of_slurm = [each for each in everyone if each.case.slurm]
    in_cgroups([each for each in everyone if each not in of_guest + of_slurm])
    if not options.without_slurm:
        as_jobs(of_slurm + [each for each in everyone if needs_nothing(each.case)])
    if not options.without_guest and of_guest:
        in_guest(of_guest)
    scores = {name: score(group) for name, group in groups.items() if group}
    for name, told in scores.items():
        print(f"\n{table(groups[name])}")
        print(f"\n{name}: {told['deaths_right']} of {told['deaths']} deaths explained rightly,", end=" ")
        print(f"{told['false_alarms']} false alarms in {told['healthy']} healthy runs")
        print(f"{'died of the limit?':20}{'asked':>7}{'right':>7}{'missed':>8}{'false alarms':>14}")
        for who, row in told["died_of_the_limit"].items():
            print(f"{who:20}{row['asked']:7}{row['right']:7}{row['missed']:8}{row['false_alarms']:14}")
    if not options.no_save:
        result_ = {"scores": scores}
        save(
            "memory_explain", result_ | {name: [e.to_json() for e in group] for name, group in groups.items()}
        )


if __name__ == "__main__":
    main()
