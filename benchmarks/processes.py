"""Commands as child processes: measured from outside, stepped in turns, limited in memory; packages of peers.

At import this needs the standard library only, because the programs of peers import it as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent


@dataclass(frozen=True)
class Ran:
    """A process that has ended. cpu_s includes its descendants that were waited for."""

    wall_s: float
    cpu_s: float
    output: str

    @property
    def json(self) -> Any:
        """The last line of the output as JSON."""
        return json.loads(self.output.strip().splitlines()[-1])


def run(
    command: Sequence[Any],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    code: int | None = 0,
    look: Callable[[int], None] | None = None,
    every_s: float = 0.2,
    errors: bool = True,
    limit_s: float = 900,
) -> Ran:
    """Run a command to its end and measure it from outside.

    Args:
        code: exit status that is expected; None: any.
        look: called with the process id every `every_s` seconds while the process lives; above 0.1 s it takes
            at most a twentieth of a core.
        errors: stderr is part of the output.
    Raises:
        RuntimeError: another exit status, with the end of the output.
    """  # fmt: skip
    words, done = [str(word) for word in command], threading.Event()
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as other:
        began = time.perf_counter()
        process = subprocess.Popen(
            words, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log if errors else other,
        )  # fmt: skip
        limit = threading.Timer(limit_s, process.kill)
        limit.start()

        def watch() -> None:
            pause = every_s / 4  # short commands are seen as well
            while look is not None and not done.wait(pause):
                started = time.perf_counter()
                look(process.pid)
                pause = every_s if every_s <= 0.1 else max(every_s, 20 * (time.perf_counter() - started))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        limit.cancel()
        watcher.join()
        log.seek(0)
        other.seek(0)
        output = log.read().decode("utf-8", "replace")
        if code is not None and process.returncode != code:
            said = (output + other.read().decode("utf-8", "replace"))[-3000:]
            raise RuntimeError(f"{' '.join(words)[:300]} exited with {process.returncode}:\n{said}")
    return Ran(round(wall_s, 4), round(usage.ru_utime + usage.ru_stime, 3), output)


def seconds_of(command: Sequence[Any], **more: Any) -> float:
    """Wall time of one process in seconds. Takes the arguments of `run`."""
    return run(command, **more).wall_s


class LeftOut(Exception):
    """A case that cannot be measured on this machine."""


class Turns:
    """A process that takes one step when a line is written to it, and prints a line of JSON after each.

    All cases are alive at the same time and take their steps in turns, so that other work on the machine
    affects all alike. The process uses `Turn`. Its first line comes without a request.
    """

    def __init__(
        self, command: Sequence[Any], env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        self._log = tempfile.TemporaryFile() if log is None else open(log, "w+b")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )  # fmt: skip
        self.first = self._read()

    def step(self) -> dict[str, Any]:
        """Result of the next step. Raises LeftOut if the process has ended."""
        with suppress(BrokenPipeError):
            print(file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            lines = self.log().strip().splitlines() or ["no message"]
            raise LeftOut(f"exited with {self.process.returncode}: {lines[-1]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def log(self) -> str:
        """Text that the process has written to stderr."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def end(self) -> None:
        """Close the pipe of the process, which ends it."""
        with suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Turn:
    """The child's side of `Turns`: reports the end of each step and waits for the next request."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # everything else that is printed goes to the log
        self._began = self._began_cpu = 0.0

    def end_step(self, **more: Any) -> None:
        """Report a step with its seconds; ends the process when no step is wanted any more."""
        now, cpu = time.perf_counter(), time.process_time()
        found = {
            "step_s": now - self._began,
            "cpu_s": cpu - self._began_cpu,
            "peak_bytes": proc_bytes("VmHWM"),
            **more,
        }
        print(json.dumps(found), file=self._answers, flush=True)
        if not sys.stdin.readline():
            os._exit(0)  # threads and workers of peers are not waited for
        self._began, self._began_cpu = time.perf_counter(), time.process_time()


def proc_bytes(field: str, pid: int | str = "self") -> int:
    """A field of /proc/PID/status that is in kB, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else 0
    return 0


def descendants(pid: int) -> list[int]:
    """Process ids of all children of a process, theirs, and so on."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


MEMORY_WORDS = (
    "peak of the sum over all processes of Pss_Anon and Pss_Shmem (smaps_rollup) and of files in memory that "
    "are open but not mapped, sampled every 0.2 s; page cache does not count"
)


class MemoryLook:
    """Peak memory and CPU time of a process tree, for `run(look=...)`. All in bytes."""

    def __init__(self) -> None:
        self.peak = 0
        self._cpu_s: dict[tuple[int, str], float] = {}

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes as last seen: some tools do not wait for theirs."""
        return sum(self._cpu_s.values())

    def __call__(self, pid: int) -> None:
        held: dict[int, int] = {}
        files: dict[int, int] = {}
        for one in (pid, *descendants(pid)):
            with suppress(OSError):
                stat = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
                self._cpu_s[one, stat[19]] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
                held[one] = sum(
                    int(size) << 10 for size in re.findall(r"Pss_(?:Anon|Shmem): +(\d+) kB", rollup)
                )
                maps = Path(f"/proc/{one}/maps").read_text()
                for entry in Path(f"/proc/{one}/fd").iterdir():
                    if str(entry.readlink()).startswith("/memfd:") and f" {entry.stat().st_ino} " not in maps:
                        files[entry.stat().st_ino] = 512 * entry.stat().st_blocks
        self.peak = max(self.peak, sum(held.values()) + sum(files.values()))


@contextmanager
def memory_limit(limit_bytes: int | None) -> Iterator[list[str]]:
    """Words to put before a command so that it runs in a new memory cgroup with this limit; none for None.

    Raises:
        LeftOut: no memory cgroup here, or no right to make one.
    """
    from memory.measure.cgroup import find_levels

    if limit_bytes is None:
        yield []
        return
    version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
    roots = {1: Path("/sys/fs/cgroup/memory"), 2: Path("/sys/fs/cgroup")}
    parent = Path(levels[0].folder) if levels else roots[version]
    job = parent / f"highwater_bench_{os.getpid()}_{time.time_ns()}"
    try:
        job.mkdir()
        if version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        (job / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(limit_bytes))
    except OSError as error:
        with suppress(OSError):
            job.rmdir()
        raise LeftOut(f"{parent}: {error.strerror}; it needs root and a memory cgroup") from error
    try:
        yield ["sh", "-c", f'echo $$ > "{job}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        for _ in range(50):
            with suppress(OSError):
                job.rmdir()
                break
            time.sleep(0.1)


def peers_python(requirements: str) -> Path:
    """Interpreter that has the packages of a list in benchmarks/; installs them into a folder of their own.

    Raises:
        LeftOut: pip cannot install them.
    """
    listed = BENCHMARKS / requirements
    folder = BENCHMARKS / f".{listed.stem.replace('_', '-')}-venv"
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(listed.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        # A .pth file comes after the folder's own packages, so that the project's shadow none of them.
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", listed]
        if subprocess.run(install, stdout=sys.stderr).returncode:
            raise LeftOut(f"pip cannot install {requirements}")
        mark.write_text(wanted)
    return python


def versions_of(python: Path, names: Sequence[str]) -> dict[str, str]:
    """Versions of these packages as another interpreter finds them."""
    code = (
        "import json; from importlib import metadata\n"
        "print(json.dumps({d.name.lower(): d.version for d in reversed(list(metadata.distributions()))}))"
    )
    found = run([python, "-c", code], errors=False).json
    return {name: found[name] for name in names if name in found}


def commit_of(checkout: Path) -> str:
    """Commit of a checkout; of a copy without git, the content of its file COMMIT or .gpu/commit."""
    done = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    written = [path for name in ("COMMIT", ".gpu/commit") if (path := checkout / name).exists()]
    if written and (written[0].name == "COMMIT" or done.returncode):
        return written[0].read_text().strip()
    return done.stdout.strip() or "unknown"


TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "34359738368",
    "MALLOC_TOP_PAD_": "67108864",
}
"""Settings with which glibc's allocator keeps its memory."""


def allocator_environment(is_tuned: bool) -> dict[str, str]:
    """The user's environment without settings of the allocator, or with those that keep its memory."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    return plain | (TUNED if is_tuned else {})
