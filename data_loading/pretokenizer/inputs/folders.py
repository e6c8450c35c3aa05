"""Files below a folder that are inputs, links followed, and a count of what is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data_loading.text_io.byte_files import read_errors
from data_loading.text_io.file_names import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    bare_name,
    has_known_suffix,
)
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted

_SHOWN = 8


@dataclass
class LeftOut:
    """Contents of folders that are no input. others: files of other kinds. The rest are counts."""

    others: list[Path] = field(default_factory=list)
    broken_links: list[Path] = field(default_factory=list)
    hidden: int = 0
    special: int = 0

    def note(self, taken: Collection[Path] = ()) -> str | None:
        """One line for the user; None if nothing is left out. taken: files that are inputs after all."""
        others = [path for path in self.others if path not in taken]
        parts, how = [], ""
        if others:
            suffixes = Counter(path.suffix.lower() or "no suffix" for path in others)
            shown = ", ".join(f"{suffix} {count:,}" for suffix, count in suffixes.most_common(_SHOWN))
            more = ", ..." if len(suffixes) > _SHOWN else ""
            parts.append(f"{counted(len(others), 'file')} of other kinds ({shown}{more})")
            how = f". To take them, give them as a pattern, such as '{others[0].parent}/*{others[0].suffix}'"
            if any(path.name.lower().endswith((".json", ".arrow")) for path in others):
                how += "; --text-field NAME takes .json (one object a line) and .arrow too"
        if self.broken_links:
            parts.append(f"{counted(len(self.broken_links), 'broken link')} (such as {self.broken_links[0]})")
        if self.special:
            parts.append(f"{self.special:,} that are no plain files (pipes, sockets, devices)")
        if self.hidden:
            parts.append(f"{self.hidden:,} hidden")
        return f"left out: {', '.join(parts)}{how}" if parts else None


def files_below(folder: Path, left_out: LeftOut, *, with_fields: bool) -> list[Path]:
    """All files of known kinds, in the order of their relative paths.

    Hidden ones are left out, and the tokenizers that are stored next to token sets.

    Args:
        left_out: Gets what is no input.
        with_fields: A field is named (`--text-field`), so that .json and .arrow are inputs as well.

    Raises:
        UserError: there is none, a folder cannot be read, or a link leads back to a folder above it.
    """
    found: list[Path] = []
    for path in _walk(folder, {}, left_out):
        fields = bare_name(path.name).lower().endswith((*JSON_SUFFIXES, *TABLE_SUFFIXES))
        is_input = has_known_suffix(path.name) or (with_fields and fields)
        (found if is_input else left_out.others).append(path)
    if not found:
        known = ", ".join((*TEXT_SUFFIXES, *JSON_SUFFIXES))
        note = left_out.note()
        raise UserError(
            f"{folder} is a folder without any file of a known kind ({known}, each plain or with .gz, .zst, "
            ".bz2 or .xz; .parquet)" + (f"; {note}" if note else ""),
            code="folder-without-texts",
        )
    return sorted(found, key=lambda path: path.parts)


def _walk(folder: Path, above: dict[tuple[int, int], Path], left_out: LeftOut) -> Iterator[Path]:
    """Plain files. above: the folders on the way here, by device and inode."""
    with read_errors(folder):
        stat, entries = folder.stat(), list(os.scandir(folder))
    here = stat.st_dev, stat.st_ino
    if here in above:
        raise UserError(
            f"{folder} is a link that leads back to {above[here]}, a loop: remove it (rm)",
            code="input-link-loop",
        )
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            left_out.hidden += 1
        elif entry.name.endswith(".tokenizer"):
            continue
        elif _is(entry.is_dir):
            yield from _walk(path, {**above, here: folder}, left_out)
        elif _is(entry.is_file):
            yield path
        elif entry.is_symlink():
            left_out.broken_links.append(path)
        else:
            left_out.special += 1


def _is(test: Callable[[], bool]) -> bool:
    """Whether the test of a directory entry holds; False for a link to itself."""
    try:
        return test()
    except OSError:
        return False
