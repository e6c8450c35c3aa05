"""Fixtures that every room's tests use."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.golden_text import (  # noqa: F401 (hooks and a fixture)
    golden,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
from tests.searched import examples
from training.ensemble import allocator

if TYPE_CHECKING:
    from tests.browser import Browser
    from tests.local_slurm import Cluster
    from tests.scheduling import LongestFirst

# The same tree gets the same verdict on every machine, however slow; make soak looks for new examples.
# Fixtures of tests with @given hold nothing that an example changes.
_NO_CLOCK = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("repeatable", derandomize=True, max_examples=examples(100), **_NO_CLOCK)
settings.register_profile("explore", derandomize=False, max_examples=examples(100), **_NO_CLOCK)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Collecting 10,000 tests makes objects that live until the end. The garbage collector does not look at them
# while they are made, nor later: a quarter of the CPU time of a test run.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LongestFirst | None:
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduling import LongestFirst

    return LongestFirst(config, log)


# A shell ignores SIGINT for what it starts in the background of a script, and every process that a test
# starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An ensemble has the C library keep freed memory for the rest of its process, which tests of memory share.
allocator.keep_freed_memory = lambda: True

# A user's own place for runs is not theirs, nor are the job and the cluster in which they are started.
_OF_A_JOB = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "PMI")
for _name in [name for name in os.environ if name == "HIGHWATER_RUNS_DIR" or name.startswith(_OF_A_JOB)]:
    del os.environ[_name]

# Messages are wrapped for a terminal of the usual width, whatever runs the tests says.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# As where the environment is active: commands are printed with `python`.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# Compiling our files anew is a third of the time of a short process, and tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _not_waiting(descriptor: int) -> None:
    """In place of fsync(2) in this process: a wrong descriptor is still an error.

    No test cuts the power, and what a process has written survives its death. Processes that tests
    start do wait for the disk.
    """
    os.fstat(descriptor)


for _name in ("fsync", "fdatasync"):
    if hasattr(os, _name):
        setattr(os, _name, _not_waiting)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real text and tokenizer files that may lie beside the checkout; a fresh clone has none."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real-text folder ../shared/data beside this checkout")
    return folder


@pytest.fixture(autouse=True)
def _commands_as_written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands printed in this process are as in the checkout, wherever the test is."""
    if "typed_here" not in request.fixturenames:
        monkeypatch.setattr("experiment_utils.typed_here.as_typed_here", str)


@pytest.fixture
def typed_here() -> None:
    """Commands are printed as they are typed where the test is, as in a process of their own."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Two are no faster on small matrices, and wait for each other where the cores have other work."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates in this process are for the CPU build of torch, whichever is installed."""
    monkeypatch.setattr("memory.estimate.constants.torch_build", lambda: "cpu")


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the test start without torch._dynamo: half of the CPU time of a short run."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "quick_start"))


@pytest.fixture
def hears_hangup() -> Iterator[None]:
    """SIGHUP is not ignored, also where these tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(inode, size) of what this process has had written to the device, in this order."""
    found: list[tuple[int, int]] = []

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        found.append((status.st_ino, status.st_size))

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, noted)
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB of its own; needs the right to mount."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """A real Slurm on this machine, limits by the kernel. Tests that use it are slow and privileged."""
    yield from _cluster("cgroup")


@pytest.fixture(scope="session")
def polling_slurm_cluster() -> Iterator[Cluster]:
    """The same, but it sums RSS once a second and kills, as some sites do."""
    yield from _cluster("poll")


def _cluster(limits: str) -> Iterator[Cluster]:
    from tests.local_slurm import LENT, Cluster, NoCluster, cluster
    from tests.memory.deaths.cgroups import version_here

    lent = Cluster.from_json(os.environ[LENT]) if LENT in os.environ else None
    if lent is not None and lent.limits == limits:
        yield lent
        return
    if limits == "cgroup" and version_here() != 1:
        pytest.skip("limits by cgroup need the v1 memory controller here: Slurm without systemd knows no v2")
    try:
        with cluster(limits) as found:
            yield found
    except NoCluster as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real one, for the tests that look at pages."""
    from tests.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium, or set HIGHWATER_BROWSER to one")
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found
