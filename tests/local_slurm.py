"""A real Slurm on this machine for tests: slurm/local_cluster.sh with a folder and ports of its own.

The fixtures `slurm_cluster` and `polling_slurm_cluster` share one in a session of tests. A process that
has one up lends it to the tests that it starts: LENT.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "slurm" / "local_cluster.sh"
LENT = "HIGHWATER_TEST_SLURM"
"""Variable of the environment: `Cluster.to_json` of a cluster that is up."""
_DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacct")


class NoCluster(Exception):
    """None can be started here; says why."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up. variables: of the environment, for its clients. limits: "cgroup" or "poll".
    small_disk: a file system of 32 MB (the code of a run, and little beside it), which its nodes see too;
    None where that cannot be mounted.
    """

    folder: Path
    variables: dict[str, str]
    limits: str
    small_disk: Path | None = None

    def to_json(self) -> str:
        small_disk = str(self.small_disk) if self.small_disk else None
        return json.dumps({**asdict(self), "folder": str(self.folder), "small_disk": small_disk})

    @classmethod
    def from_json(cls, text: str) -> Cluster:
        plain = json.loads(text)
        small_disk = Path(plain["small_disk"]) if plain["small_disk"] else None
        return cls(Path(plain["folder"]), plain["variables"], plain["limits"], small_disk)

    def say(self, *command: str, check: bool = True) -> str:
        """Output of a client command."""
        done = subprocess.run(
            command, env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=60
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """Of the whole job, by sacct; "" as long as it is not known."""
        states = self.say("sacct", "-n", "-X", "-P", "-j", job, "-o", "State")
        return states.splitlines()[-1].split()[0] if states else ""

    def row(self, job: str, of: str) -> str:
        """A word of squeue's row of the job, `of` as for its --format; "" where it has none."""
        return self.say("squeue", "-h", "--states=all", "-j", job, "-o", of, check=False)

    def script(self, *arguments: str) -> None:
        """Another command of local_cluster.sh, such as kill-node."""
        subprocess.run([str(SCRIPT), *arguments], env={**os.environ, **self.variables}, check=True)


@contextmanager
def cluster(limits: str = "auto") -> Iterator[Cluster]:
    """Start one with its own folder and ports; stop it afterwards.

    Raises:
        NoCluster: that is not possible here.
    """
    if os.geteuid() != 0:
        raise NoCluster("a Slurm cluster needs root")
    missing = [name for name in _DAEMONS if shutil.which(name) is None]
    if missing:
        raise NoCluster(f"no {', '.join(missing)}: `slurm/local_cluster.sh install` as root installs them")
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-"))  # short: it holds sockets
    variables = {
        "LOCAL_SLURM_DIR": str(folder),
        "LOCAL_SLURM_PORT": str(_free_ports()),
        "LOCAL_SLURM_LIMITS": limits,
        "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
    }
    around = {**os.environ, **variables}
    small_disk = _mounted(folder / "small")  # before the nodes, which see no later mounts
    try:
        started = subprocess.run(
            [str(SCRIPT), "start"], env=around, capture_output=True, text=True, timeout=300
        )
        if started.returncode != 0:
            raise NoCluster(f"the Slurm cluster did not start: {started.stderr.strip()}")
        yield Cluster(folder, variables, _limits_of(folder), small_disk)
    finally:
        subprocess.run([str(SCRIPT), "stop"], env=around, capture_output=True, timeout=120)
        if small_disk is not None:
            subprocess.run(["umount", "-l", str(small_disk)], check=False)
        subprocess.run([str(SCRIPT), "purge"], env=around, capture_output=True, timeout=120)


def _mounted(folder: Path) -> Path | None:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    return folder if subprocess.run(command, capture_output=True).returncode == 0 else None


def _limits_of(folder: Path) -> str:
    return "poll" if "OverMemoryKill" in (folder / "etc" / "slurm.conf").read_text() else "cgroup"


def _free_ports() -> int:
    """First of 40 ports of which the ones that are used are free.

    Processes that start one at the same time look from different places on.
    """
    places = range(17000, 27000, 50)
    own = os.getpid() % len(places)
    for first in (*places[own:], *places[:own]):
        try:
            for offset in (7, 9, 21, 22):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
    raise NoCluster("no free ports between 17000 and 27000")
