"""Files that are written whole or not at all, also after a crash or a power cut.

A reader never sees half a file: the content goes to a temporary name in the same folder, is fsynced and
renamed, and the folder is fsynced (rename(2) is atomic on one file system; fsync(2): a folder needs its own).

The supervisor imports this, and its memory counts: modules that few callers need are imported in functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from experiment_utils.errors import UserError
from experiment_utils.safe_read import read_plain

on_point: Callable[[str], None] | None = None
"""Called at each named point of a write; kill tests put their SIGKILL here."""

guards: list[Callable[[], None]] = []
"""Called before each write; a process that has lost the lease of its run ends here."""


def guard() -> None:
    """Call the guards: for writes to a run folder that do not go through this module."""
    for check in tuple(guards):
        check()


def point(name: str) -> None:
    """Mark a moment at which a kill must lose nothing, such as `checkpoint:before_rename`."""
    if on_point is not None:
        on_point(name)


@contextmanager
def atomic_file(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name `path` when the block ends without an exception.

    An exception removes the temporary file and leaves an older `path` untouched. Raises OSError
    (disk full, read-only folder) as the system does.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{os.uname().nodename}.{os.getpid()}.tmp")
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        point(f"{name}:before_rename")
        guard()
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(folder or ".")
    point(f"{name}:after_rename")


class Unreadable(UserError):
    """A file or folder that exists and that the system does not let this process read.

    A permission, an I/O error or a stale handle says nothing about the content: it is neither absent nor
    damaged. A caller that catches this must not remove it, replace it or begin again without it.
    """

    def __init__(self, path: str | Path, error: OSError) -> None:
        self.path, self.why = Path(path), error.strerror or str(error)
        super().__init__(
            f"{path} cannot be read: {self.why}. Nothing was removed or replaced. Make it readable for this "
            "user on this machine, then type the same command again"
        )


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an OSError of the block into Unreadable, unless it says that there is no such file.

    Raises:
        FileNotFoundError, NotADirectoryError: `path` is absent.
        Unreadable: it exists and cannot be read.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise Unreadable(path, error) from error


def read_object(path: str | Path) -> dict[str, Any] | None:
    """The JSON object of a file, None if the file is absent.

    Raises:
        Unreadable: it exists and cannot be read.
        ValueError: it is damaged, or holds no object.
    """
    from experiment_utils.json_values import parse_json  # 500 KB that the supervisor does without

    try:
        with reading(path):
            content = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = parse_json(content)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace the file by `content`, atomically."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: str | Path, text: str) -> None:
    """Replace the file by `text` (UTF-8), atomically."""
    write_bytes(path, text.encode("utf-8"))


def to_json(value: Any) -> str:
    """The indented JSON text that `write_json` writes."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: str | Path, value: Any) -> None:
    """Replace the file by indented JSON, atomically."""
    write_text(path, to_json(value))


def fsync_file(path: str | Path) -> None:
    """Write the content of the file to the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def fsync_folder(folder: str | Path) -> None:
    """Make renames in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_folder(new: str | Path, folder: str | Path, aside: str | Path, name: str) -> None:
    """Give `new`, whose files are on the disk, the name `folder`; an older `folder` is removed.

    Args:
        aside: name of the older folder meanwhile: a kill between the two renames leaves it there.
        name: prefix of the points of the write.
    """
    import shutil

    point(f"{name}:before_rename")
    with suppress(FileNotFoundError):
        os.rename(folder, aside)
        point(f"{name}:moved_aside")
    os.rename(new, folder)
    fsync_folder(Path(folder).parent)
    point(f"{name}:after_rename")
    shutil.rmtree(aside, ignore_errors=True)


def file_sha256(path: str | Path) -> str:
    """Hex digest of the file's bytes, read in blocks."""
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
