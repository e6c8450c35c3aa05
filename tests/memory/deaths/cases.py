"""A case: a program, the surroundings in which it runs, and the truth about how it ended.

A file is a case if it holds a block of TOML in comments, `# /// case` to `# ///` (the form of PEP 723).
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS, BLIND = HERE / "programs", HERE / "blind"
_BLOCK = re.compile(r"^# /// case\n(?P<toml>(?:#.*\n)+?)# ///$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """kind: "death" or "healthy". verdict, cause: any one of these is right; an empty cause: not judged.
    victim: "main", "child", or "" where it is not judged. near_limit: None where it is not judged.
    says: words that must stand in the evidence, whatever their case.

    limit_mb: of the job's cgroup; the run stands in a cgroup below, without a limit, as under Slurm.
    parent_limit_mb: of a cgroup above the job's. shm_mb: size of a /dev/shm of its own. rlimit_as_mb: as
    `ulimit -v` sets it. run_disk_mb: size of a file system of its own for the run's folder.
    oom_group: memory.oom.group of the job's cgroup, v2 alone; high_mb its memory.high.

    beside: a second process, the program with the argument "beside", runs all the while: in the cgroup of
    the "job", of a "sibling" of the job, or "outside" of both. before: the program runs once with the
    argument "before", in the same cgroup, and ends, whatever becomes of it.
    command: what the supervisor starts, with {python} and {program}. needs: "torch", "v2", "slurm", "poll".
    slurm: of `sbatch`: `mem_mb`, `options`, `script` (with {run}: the supervised program), `then` (done
    from outside once the program has told "ready").
    """

    name: str
    program: Path
    what: str
    kind: str
    verdict: tuple[str, ...] = ("healthy",)
    cause: tuple[str, ...] = ()
    victim: str = ""
    near_limit: bool | None = None
    says: tuple[str, ...] = ()
    limit_mb: int = 200
    parent_limit_mb: int | None = None
    shm_mb: int | None = None
    rlimit_as_mb: int | None = None
    run_disk_mb: int | None = None
    oom_group: bool = False
    high_mb: int | None = None
    beside: str = ""
    before: str = ""
    command: tuple[str, ...] = ("{python}", "{program}")
    needs: tuple[str, ...] = ()
    slurm: dict[str, Any] = field(default_factory=dict)


def read_case(path: Path) -> Case:
    """The case in a program.

    Raises:
        ValueError: it has no block, or the block has a key or a value that is none; names both.
    """
    text = path.read_text()
    found = _BLOCK.search(text)
    if found is None:
        raise ValueError(f"{path}: no block of comments from '# /// case' to '# ///'")
    given = tomllib.loads(re.sub(r"^# ?", "", found["toml"], flags=re.MULTILINE))
    known = {each.name for each in fields(Case)} - {"name", "program", "what"}
    if unknown := set(given) - known:
        raise ValueError(f"{path}: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    if given.get("kind") not in ("death", "healthy"):
        raise ValueError(f'{path}: kind is "death" or "healthy", not {given.get("kind")!r}')
    if given["kind"] == "death" and not given.get("verdict"):
        raise ValueError(f"{path}: a death needs its verdict")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    what = (ast.get_docstring(ast.parse(text)) or path.stem).splitlines()[0]
    return Case(name=path.stem, program=path, what=what, **values)


def read_cases(folder: Path = PROGRAMS) -> list[Case]:
    """All cases of a folder, by name."""
    return [read_case(path) for path in sorted(folder.glob("*.py"))]
