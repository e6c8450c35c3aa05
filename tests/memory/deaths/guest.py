"""A small virtual machine with cgroup v2, in which cases run where this machine counts memory by v1.

QEMU boots Debian's own kernel with a ramdisk of a few modules; the root is this machine's, read-only over
9p, so that interpreter and checkout are the same. What is written goes to a disk of its own, gone at the end.
Needs no network and no rights beyond those to read the files.

    python -m tests.memory.deaths.guest install               # QEMU, busybox, the kernel; as root
    python -m tests.memory.deaths.guest run v2_oom_group ...  # cases by name; in the guest `inside`
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.memory.deaths.cases import BLIND, PROGRAMS, read_case

ROOT = Path(__file__).parents[3]
KERNEL = Path(
    os.environ.get("HIGHWATER_GUEST_KERNEL")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highwater" / "guest-kernel"
)
"""Where the kernel's package is unpacked: boot/vmlinuz-*, lib/modules/*."""
MEMORY_MB = 700
_CASE_S = 360.0
"""The guest is emulated: all takes several times as long, and more where the host is busy."""
DISK_MB = 1200
"""For the cases' files: in a tmpfs a read of a file would count as shared memory, not as page cache."""
_HIDDEN = ("/dev/", "/mnt/", "/proc/", "/run/", "/sys/")
QEMU = "qemu-system-x86_64"
_MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
    "netfs", "fscache", "9pnet", "9pnet_virtio", "9p",
    "virtio_blk", "crc16", "crc32c_generic", "mbcache", "jbd2", "ext4",
)  # fmt: skip
"""In the order in which they need each other."""
_INIT = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for name in {modules}; do $B insmod /modules/$name.ko; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose root /root
for each in proc sys dev; do $B mount --move /$each /root/$each; done
$B mount -t tmpfs tmpfs /root/run
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 result /root/mnt
$B mkdir -p /root/dev/shm /root/run/tmp
$B mke2fs /root/dev/vda >/dev/null 2>&1
$B mount -t ext4 /root/dev/vda /root/run/tmp
$B mount -t tmpfs tmpfs /root/dev/shm
$B mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
$B ip link set lo up
$B chroot /root /usr/bin/env HOME=/run TMPDIR=/run/tmp PATH={path} sh -c {command} >/root/dev/ttyS0 2>&1
$B sync
$B poweroff -f
"""


class NoGuest(Exception):
    """None can be started here; says why."""


def install() -> None:
    """Fetch what a guest needs with apt-get: about 150 MB, a minute."""
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", "qemu-system-x86", "busybox-static"],
    ):
        subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    shown = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True
    ).stdout
    package = re.findall(r"Depends: (linux-image-\S+)", shown)[0]
    KERNEL.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True)
        (archive,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(KERNEL)], check=True)


def run_in_guest(
    names: list[str], timeout_s: float = 900.0, evidence: Path | None = None
) -> list[dict[str, Any]]:
    """Boot, run these cases one after another, and power off. Of each: name, misfire, wrong, explanation,
    report; the misfire of those that it did not get to is what it said last.

    Args:
        evidence: a folder to make, with the evidence of each case in a folder of its name.

    Raises:
        NoGuest: something that it needs is not installed; says how to get it.
    """
    if platform.machine() != "x86_64" or str(ROOT).startswith(_HIDDEN):
        raise NoGuest(f"the guest is of x86_64 and does not see {', '.join(_HIDDEN)}; this is {ROOT}")
    kernels = sorted(KERNEL.glob("boot/vmlinuz-*"))
    missing = [name for name in (QEMU, "busybox") if shutil.which(name) is None]
    if missing or not kernels:
        what = ", ".join([*missing, *([] if kernels else [f"kernel in {KERNEL}"])])
        raise NoGuest(f"no {what}: `python -m tests.memory.deaths.guest install` as root fetches it")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = folder / "result"
        result.mkdir()
        inside = [sys.executable, "-m", "tests.memory.deaths.guest", "inside", *names]
        command = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(inside)}"
        ramdisk = _ramdisk(folder, kernels[-1].name.removeprefix("vmlinuz-"), command)
        said = _boot(kernels[-1], ramdisk, result, timeout_s)
        found = [json.loads(path.read_text()) for path in sorted(result.glob("*.json"))]
        if evidence is not None:
            shutil.copytree(result / "evidence", evidence)
    told = {each["name"] for each in found}
    not_run = {
        "misfire": f"the guest did not run it; it said: {said[-3000:]}",
        "wrong": [],
        "explanation": {},
    }
    return found + [{"name": n, **not_run, "report": not_run["misfire"]} for n in names if n not in told]


def _ramdisk(folder: Path, release: str, command: str) -> Path:
    tree = folder / "ramdisk"
    for part in ("bin", "modules", "proc", "sys", "dev", "root"):
        (tree / part).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, tree / "bin" / "busybox")
    for module in _MODULES:
        (path,) = (KERNEL / "lib" / "modules" / release).rglob(f"{module}.ko")
        shutil.copy(path, tree / "modules")
    init = tree / "init"
    init.write_text(
        _INIT.format(
            modules=" ".join(_MODULES), path=os.environ.get("PATH", os.defpath), command=shlex.quote(command)
        )
    )
    init.chmod(0o755)
    listed = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        [busybox, "cpio", "-o", "-H", "newc"],
        cwd=tree,
        input=listed.encode(),
        capture_output=True,
        check=True,
    )
    path = folder / "ramdisk.gz"
    path.write_bytes(gzip.compress(packed.stdout, 1))
    return path


def _boot(kernel: Path, ramdisk: Path, result: Path, timeout_s: float) -> str:
    """Returns what the guest said on its console."""
    command = [QEMU, "-machine", "accel=tcg", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MB)]
    command += ["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio", "-net", "none"]
    command += ["-kernel", str(kernel), "-initrd", str(ramdisk)]
    with open(result.parent / "disk", "wb") as disk:
        disk.truncate(DISK_MB << 20)
    command += ["-drive", f"file={disk.name},format=raw,if=virtio,cache=unsafe"]
    command += ["-append", "console=ttyS0 quiet panic=-1 psi=1 rdinit=/init"]
    for tag, path, options in (("root", "/", ",readonly=on"), ("result", str(result), "")):
        command += ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{options}"]
        command += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else (late.stdout or "")
        return f"{said}\nthe guest did not end within {timeout_s:.0f} s"
    return done.stdout + done.stderr


def _inside(names: list[str], result: Path) -> None:
    """In the guest: one file a case."""
    from tests.memory.deaths.harness import run_case
    from tests.memory.deaths.recorded import keep

    for number, name in enumerate(names):
        begin = time.monotonic()
        place = BLIND if (BLIND / f"{name}.py").exists() else PROGRAMS
        with tempfile.TemporaryDirectory() as folder:
            try:
                ran = run_case(
                    read_case(place / f"{name}.py"),
                    Path(folder) / name,
                    timeout_s=_CASE_S,
                    then=lambda ran: keep(ran.case, ran.run, result / "evidence" / ran.case.name),
                )
                found = {"misfire": ran.misfire(), "wrong": ran.wrong, "explanation": ran.explanation}
                found["report"] = ran.report()
            except Exception as error:  # told outside, where it is a failure
                late = isinstance(error, subprocess.TimeoutExpired)  # its words are the paths of this machine
                told = f"it took longer than {error.timeout:.0f} s in the guest" if late else repr(error)
                found = {"misfire": told, "wrong": [], "explanation": {}, "report": told}
        path = result / f"{number:03d}.json"
        path.write_text(json.dumps({"name": name, **found}))
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


def main(arguments: list[str]) -> None:
    what, *names = arguments or ["run"]
    if what == "install":
        install()
    elif what == "inside":
        _inside(names, Path("/mnt"))
    else:
        for each in run_in_guest(names):
            print(each["report"] if each["misfire"] or each["wrong"] else f"{each['name']}: right")


if __name__ == "__main__":
    main(sys.argv[1:])
