"""Compare `explain` with other tools on deaths and on healthy but alarming runs.

Runs every case of tests/memory/deaths: programs that die, or do well, in a cgroup with a limit. Each runs
twice: in a cgroup here, with a log of RSS by psutil and Lightning's DeviceStatsMonitor, and, if it needs
nothing special, as a job of a real Slurm, with sacct and seff. `explain` is right if verdict, cause and
victim are; the others give no verdict, so they are asked one thing: did it die of its memory limit? Cases
in tests/memory/deaths/blind were written by an author who had not seen the rules; they are counted apart.

    python benchmarks/memory_explain.py [--only NAME ...] [--without-slurm] [--without-guest]

Needs root and a memory cgroup; `slurm/local_cluster.sh install` and
`python -m tests.memory.deaths.guest install` for the rest. Takes ten minutes.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark
from benchmarks.memory_peers import NEVER, Log, Said, import_lightning, sacct, seff
from tests.local_slurm import Cluster, NoCluster, cluster
from tests.memory.deaths.cases import BLIND, PROGRAMS, Case, read_cases
from tests.memory.deaths.cgroups import NoCgroup, version_here
from tests.memory.deaths.guest import NoGuest, run_in_guest
from tests.memory.deaths.harness import run_case
from tests.memory.deaths.slurm import interfere, result, submit

PEERS = ("psutil", "lightning", "composer", "sacct", "seff")
ROWS = "JobID,State,ExitCode,MaxRSS,ReqMem,NTasks"


@dataclass
class Asked:
    """A case and what each tool said. right: None if it could not be judged, for the reason in `note`."""

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

    def take(self, explanation: dict[str, Any], wrong: list[str], misfire: str = "") -> None:
        """Keep what `explain` says. misfire: why the case did not happen as planned."""
        if misfire:
            self.note = misfire.splitlines()[0]
            return
        verdict, cause = explanation.get("verdict"), explanation.get("cause")
        self.says = f"{verdict}, {cause}" if cause not in (None, "none") else str(verdict)
        self.right, self.wrong, self.memory = not wrong, wrong, verdict == "oom_cgroup"
        mark = "right" if self.right else f"WRONG {'; '.join(wrong)}"
        print(f"{self.case.kind:8}{self.case.name:38}{self.says:40}{mark}", file=sys.stderr, flush=True)

    def to_json(self) -> dict[str, Any]:
        """For the saved result."""
        return {
            "case": self.case.name, "what": self.case.what, "kind": self.case.kind,
            "should_say": "/".join(self.case.verdict), "explain": self.says, "right": self.right,
            "wrong": self.wrong, "note": self.note, "died_of_the_limit": self.truth,
            "peers": {name: {"says": said.says, "memory": said.memory} for name, said in self.peers.items()},
        }  # fmt: skip


def in_cgroups(asked: list[Asked]) -> None:
    """Run cases that need no Slurm and no cgroup v2, one after another."""
    import_lightning()
    for each in asked:
        log = Log()
        try:
            with tempfile.TemporaryDirectory() as folder:
                ran = run_case(each.case, Path(folder) / "x", log.of)
                each.take(ran.explanation, ran.wrong, ran.misfire())
        except (NoCgroup, OSError) as error:
            each.note = str(error)
            continue
        each.peers |= {"psutil": log.psutil(each.case.limit_mb), "lightning": log.lightning()}
        each.peers["composer"] = Said(NEVER["composer"], None)


def as_jobs(asked: list[Asked]) -> None:
    """Run cases as jobs of a real Slurm: sacct and seff of each, `explain` of those made for it."""
    polled = [each for each in asked if "poll" in each.case.needs]
    alone = [each for each in asked if "alone" in each.case.needs]
    together = [each for each in asked if each not in polled + alone]
    for limits, group, serial in (("cgroup", together, alone), ("poll", [], polled)):
        if not group + serial:
            continue
        try:
            with cluster(limits) as where:
                with ThreadPoolExecutor(4) as threads:
                    list(threads.map(lambda each, where=where: _job(where, each), group))
                for each in serial:
                    _job(where, each)
                    where.script("start")
        except NoCluster as error:
            for each in group + serial:
                each.note = each.note or str(error)


def _job(where: Cluster, each: Asked) -> None:
    made_for_it = bool(each.case.slurm)
    case = each.case if made_for_it else replace(each.case, slurm={"script": "srun {run}"})
    try:
        with tempfile.TemporaryDirectory() as folder:
            submitted = submit(where, case, Path(folder) / "x")
            interfere(where, submitted)
            ran = result(where, submitted)
            answer = where.say("sacct", "-P", "-j", submitted.job, "-o", ROWS)
    except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
        each.note = each.note or str(error)
        return
    if made_for_it:
        each.take(ran.explanation, ran.wrong)
    head, *lines = [line.split("|") for line in answer.splitlines()]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    each.peers |= {"sacct": sacct(rows), "seff": seff(rows)}


def in_guest(asked: list[Asked]) -> None:
    """Run cases of cgroup v2 in a guest, on a machine that has v1."""
    try:
        answer = {found["name"]: found for found in run_in_guest([each.case.name for each in asked])}
    except NoGuest as error:
        for each in asked:
            each.note = str(error)
        return
    for each in asked:
        found = answer[each.case.name]
        each.take(found["explanation"], found["wrong"], found["misfire"])


def score(asked: list[Asked]) -> dict[str, Any]:
    """Counts of right verdicts, and of answers of each tool to the one question, over the cases put to it."""
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
    found["died_of_the_limit"] = {
        name: {
            "asked": len(pairs),
            "right": sum(truth == bool(said) for truth, said in pairs),
            "missed": sum(truth and not said for truth, said in pairs),
            "false_alarms": sum(bool(said) and not truth for truth, said in pairs),
        }
        for name, pairs in answers.items()
    }
    return found


def needs_nothing(case: Case) -> bool:
    """Whether a case can also run as a job: no second process, no mounts, no limits but --mem."""
    special = (
        case.beside,
        case.before,
        case.shm_mb,
        case.parent_limit_mb,
        case.rlimit_as_mb,
        case.run_disk_mb,
    )
    return not any(special) and not case.needs


@benchmark(only=([""], ["oom_main"]), without_slurm=bool, without_guest=bool)
def measured(chosen: Any) -> Any:
    groups = {
        name: [Asked(case) for case in read_cases(folder) if chosen.only == [""] or case.name in chosen.only]
        for name, folder in (("known", PROGRAMS), ("blind", BLIND))
    }
    everyone = [each for group in groups.values() for each in group]
    elsewhere = "" if version_here() == 2 else "v2"
    of_guest = [each for each in everyone if elsewhere in each.case.needs or "guest" in each.case.needs]
    of_slurm = [each for each in everyone if each.case.slurm]
    in_cgroups([each for each in everyone if each not in of_guest + of_slurm])
    if not (chosen.without_slurm or chosen.quick):
        as_jobs(of_slurm + [each for each in everyone if needs_nothing(each.case)])
    if not (chosen.without_guest or chosen.quick) and of_guest:
        in_guest(of_guest)
    found: dict[str, Any] = {"scores": {name: score(group) for name, group in groups.items() if group}}
    found |= {name: [each.to_json() for each in group] for name, group in groups.items()}
    return found
