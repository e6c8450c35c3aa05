"""Recorded deaths: the evidence that real ones left, on which `explain` is asked again in milliseconds.

The archive holds one folder for each recording, NAME or, of a case that ran in the guest as well, NAME@v2:

    run/                 the run's folder as it was: outcome.json, memory.ring, memory.jsonl, logs
    checkout/tests/...   the case's program, which also states the truth
    slurm.json           the job's number and the answers of Slurm's clients, of a case that was a job

Paths in it are relative to that folder, so that they lead to the same files wherever it is unpacked.
`deaths.json` holds the expected answer for each recording, without its sentences.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.accounting.sacct import Answer, read_slurm, run_client
from memory.explain import Explanation, explain
from memory.record.evidence import Evidence
from memory.record.ring import _FACTS_AT, _HEADER_BYTES, _MAGIC
from tests.memory.deaths.cases import Case, read_case

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE = ROOT / "tests" / "golden" / "deaths.tar.xz"
ANSWERS = ARCHIVE.with_name("deaths.json")
_CHECKOUT = "checkout"
_BLOCKS = ".blocks"
_BLOCK_BYTES = 4096
_PLACE = struct.Struct("<q")
_READ_OF_CONFIG = re.compile(r"^(SLURM_VERSION|JobAcctGather\w*|CgroupPlugin)\s*=")


def keep(case: Case, run: Path, place: Path, slurm: dict[str, Any] | None = None) -> None:
    """Copy the evidence of a run into `place`, with paths relative to it."""
    names = _Names(run.parent)
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        copy = place / "run" / path.relative_to(run)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(names.replaced(path))
    program = place / _CHECKOUT / case.program.resolve().relative_to(ROOT)
    program.parent.mkdir(parents=True)
    program.write_bytes(case.program.read_bytes())
    os.utime(program, (0, 0))  # one that is newer than the death is another by now
    if slurm is not None:
        (place / "slurm.json").write_text(names.in_text(json.dumps(slurm, indent=1)))


def ask_slurm(job: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Answers of Slurm's clients about a job, for `keep`. variables: environment of the clients."""
    answers = {}

    def ask(command: list[str], timeout_s: float) -> Answer:
        answer = run_client(command, timeout_s, {**os.environ, **variables})
        out = answer.out
        if command[-1] == "config":
            out = "".join(line for line in out.splitlines(True) if _READ_OF_CONFIG.match(line))
        answers[_question(command)] = [answer.code, out, answer.error]
        return answer

    read_slurm(job, ask=ask)
    return {"job": job, "answers": answers}


def replay(folder: Path) -> Explanation:
    """Explain the recording in this folder."""
    with chdir(folder), _utc():
        known = json.loads(Path("slurm.json").read_text()) if Path("slurm.json").exists() else None
        slurm = None
        if known is not None:
            slurm = read_slurm(
                known["job"], ask=lambda command, _: Answer(*known["answers"][_question(command)])
            )
        return explain(Evidence(Path("run")), slurm=slurm)


def case_of(folder: Path) -> Case:
    """Read the case that was recorded in this folder, with its truth."""
    (program,) = (folder / _CHECKOUT).rglob("*.py")
    return read_case(program)


def answer_of(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """States, keys and numbers of an explanation (`Explanation.to_json`), without its sentences."""
    victim = explanation["victim"]
    return {
        **{key: explanation[key] for key in ("verdict", "cause", "confidence", "cause_confidence")},
        "victim": victim and ("main" if victim["is_main"] else "child"),
        "near_limit": explanation["near_limit"],
        "rules": [finding["rule"] for finding in explanation["findings"]],
        "type": [advice["override"] for advice in explanation["advice"] if advice["override"]],
    }


def read_answers() -> dict[str, dict[str, Any]]:
    """Expected answers by name of the recording."""
    return json.loads(ANSWERS.read_text())


def write_answers(answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Write `deaths.json`, one line for each recording, so that a changed answer is one changed line."""
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in sorted(answers.items())]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def unpack(folder: Path) -> list[Path]:
    """Extract all recordings. Returns the folder of each."""
    if ARCHIVE.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
    for path in folder.rglob(f"*.ring{_BLOCKS}"):
        _write_blocks(path.with_suffix(""), path.read_bytes())
        path.unlink()
    return sorted(folder.iterdir())


def _blocks(content: bytes) -> bytes:
    """A ring without its blocks of zeros, nearly all of its 3 MB: its size, then positions and blocks."""
    places = [at for at in range(0, len(content), _BLOCK_BYTES) if any(content[at : at + _BLOCK_BYTES])]
    kept = b"".join(_PLACE.pack(at) + content[at : at + _BLOCK_BYTES] for at in places)
    return _PLACE.pack(len(content)) + kept


def _write_blocks(path: Path, kept: bytes) -> None:
    with open(path, "wb") as file:
        file.truncate(*_PLACE.unpack_from(kept))
        for begin in range(_PLACE.size, len(kept), _PLACE.size + _BLOCK_BYTES):
            file.seek(*_PLACE.unpack_from(kept, begin))
            file.write(kept[begin + _PLACE.size : begin + _PLACE.size + _BLOCK_BYTES])


def pack(folder: Path) -> None:
    """Write the archive: the same files give the same bytes."""

    def plain(found: tarfile.TarInfo) -> tarfile.TarInfo:
        found.uid = found.gid = found.mtime = 0
        found.uname = found.gname = ""
        found.mode = 0o755 if found.isdir() else 0o644
        return found

    temporary = ARCHIVE.with_name(f".{ARCHIVE.name}")
    with tarfile.open(temporary, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".ring":
                packed = _blocks(path.read_bytes())
                found = tarfile.TarInfo(f"{path.relative_to(folder)}{_BLOCKS}")
                found.size = len(packed)
                archive.addfile(plain(found), io.BytesIO(packed))
            else:
                archive.add(path, path.relative_to(folder), recursive=False, filter=plain)
    temporary.replace(ARCHIVE)


@dataclass
class _Names:
    """Replaces names of this machine in evidence. case: the folder of the case."""

    case: Path

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield str(self.case), "."
        yield str(ROOT), _CHECKOUT
        yield sys.base_prefix, "/usr"
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            own = Path(line.split(":", 2)[2])
            for depth, folder in enumerate([own, *own.parents][:-1]):
                yield str(folder), "/machine" if depth else "/machine/session"
        yield f'"{os.uname().nodename}"', '"recorded-host"'

    def in_text(self, text: str) -> str:
        for name, other in self._pairs():
            text = text.replace(name, other) if name else text
        return text

    def in_bytes(self, content: bytes) -> bytes:
        return self.in_text(content.decode("latin-1")).encode("latin-1")

    def replaced(self, path: Path) -> bytes:
        """Content of a file of the run's folder, with the names replaced."""
        content = path.read_bytes()
        if content.startswith(_MAGIC):
            head = self._with_logs(content[_FACTS_AT:_HEADER_BYTES].rstrip(b"\0"), path.parent)
            head = head.ljust(_HEADER_BYTES - _FACTS_AT, b"\0")
            return content[:_FACTS_AT] + head + content[_HEADER_BYTES:]
        if path.name == "outcome.json":
            return self._with_logs(content, path.parent)
        return self.in_bytes(content)

    def _with_logs(self, content: bytes, run: Path) -> bytes:
        """Replace in a JSON object, and correct `log_bytes_before`: the names in the logs got shorter."""
        found = json.loads(self.in_bytes(content))
        for name, size in found.get("log_bytes_before", {}).items():
            before = (run / name).read_bytes()[:size] if (run / name).exists() else b""
            found["log_bytes_before"][name] = len(self.in_bytes(before))
        return json.dumps(found, indent=1).encode()


def _question(command: list[str]) -> str:
    return " ".join(word for word in command[:3] if not word.startswith("-"))


@contextmanager
def _utc() -> Iterator[None]:
    """Black boxes and sacct write local time; the recorder's is UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
