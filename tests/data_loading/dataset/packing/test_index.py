"""The index is made once, is whole or not there, and holds no memory however many documents there are."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forked import killed_at
from supervised import wait_for

from data_loading import StreamingDataset
from data_loading.dataset.packing import pieces
from data_loading.dataset.packing.index import FACTS, PIECES, ROWS, Packing, packing_of
from data_loading.tokens.token_set import TokenSet
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
LENGTHS = [7, 300, 2, 11, 90, 16, 5, 1, 64] * 30


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tokens(tmp_path: Path) -> TokenSet:
    starts = np.cumsum([0, *LENGTHS]).astype("<u8")
    np.save(tmp_path / "a.npy", np.arange(starts[-1], dtype="<u2"))
    return TokenSet(
        tmp_path / "a.npy", np.load(tmp_path / "a.npy", mmap_mode="r"), starts[:-1], None, 60_000, "print"
    )


def opened(tokens: TokenSet, seq_len: int = 64, *, check: bool = False) -> Packing:
    return packing_of(tokens, [range(tokens.n_tokens)], seq_len, 1, 6, check=check)


def content(packing: Packing) -> tuple[bytes, bytes]:
    return (packing.folder / ROWS).read_bytes(), (packing.folder / PIECES).read_bytes()


def left_behind(packing: Packing) -> list[str]:
    return sorted(path.name for path in packing.folder.parent.iterdir() if path != packing.folder)


def test_index_is_made_once_next_to_the_tokens(
    tokens: TokenSet, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    caplog.set_level(logging.INFO)
    made = opened(tokens)
    assert made.folder.parent == tokens.path.with_name(".a.npy.derived")
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    golden.text("\n".join(warnings), numbers=False)
    assert (made.folder / ROWS).stat().st_mtime_ns % 10**9 == 0, "a time that every disk can keep"
    caplog.clear()
    assert opened(tokens) == made
    assert opened(tokens, check=True) == made
    assert caplog.text == ""
    assert left_behind(made) == []
    others = [
        opened(tokens, 65),
        packing_of(tokens, [range(100)], 64, 1, None),
        packing_of(tokens, [range(tokens.n_tokens)], 64, 2, None),
        *(opened(replace(tokens, documents=documents)) for documents in (tokens.documents[:-1], None)),
        packing_of(replace(tokens, documents=None), [range(tokens.n_tokens)], 64, 1, 5),
    ]
    assert len({packing.folder for packing in [made, *others]}) == 7


@contextmanager
def time_kept(path: Path) -> Iterator[None]:
    state = path.stat()
    yield
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    with time_kept(path):
        os.truncate(path, 200)


def edited(change: Callable[[dict], object]) -> Callable[[Path], None]:  # type: ignore[type-arg]
    def damage(folder: Path) -> None:
        facts = json.loads((folder / FACTS).read_text())
        change(facts)
        (folder / FACTS).write_text(json.dumps(facts))

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "pieces": lambda folder: flip(folder / PIECES),
    "rows cut": lambda folder: cut_short(folder / ROWS),
    "rows missing": lambda folder: (folder / ROWS).unlink(),
    "facts cut": lambda folder: (folder / FACTS).write_text('{"format": '),
    "facts no text": lambda folder: (folder / FACTS).write_bytes(b"\xff\xfe"),
    "facts a list": lambda folder: (folder / FACTS).write_text("[]"),
    "facts without rows": edited(lambda facts: facts.pop("rows")),
    "facts without files": edited(lambda facts: facts.update(files=None)),
    "other tokens": edited(lambda facts: facts["asked"].update(tokens="another")),
    "other format": edited(lambda facts: facts.update(format="another")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_index_is_made_again(
    damage: Callable[[Path], object],
    tokens: TokenSet,
    caplog: pytest.LogCaptureFixture,
    golden: Golden,
) -> None:
    made = opened(tokens)
    before = content(made)
    damage(made.folder)
    assert opened(tokens) == made
    assert content(made) == before
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    golden.text("\n".join(warnings), numbers=False)
    assert left_behind(made) == []
    caplog.clear()
    assert opened(tokens) == made
    assert caplog.text == ""


def test_a_change_that_left_size_and_time_is_found_by_a_check(tokens: TokenSet) -> None:
    made = opened(tokens)
    before = content(made)
    with time_kept(made.folder / PIECES):
        flip(made.folder / PIECES)
    assert opened(tokens) == made
    assert content(made) != before, "trusted"
    StreamingDataset(tokens, "train", 64, documents="separate")
    assert opened(tokens, check=True) == made
    assert content(made) == before


@pytest.mark.parametrize(
    ("name", "value"), [(PIECES, 10**12), (PIECES, 0), (PIECES, 66), (ROWS, 0), (ROWS, 10**12)]
)
def test_wrong_rows_of_a_valid_index_are_an_error(
    name: str, value: int, tokens: TokenSet, golden: Golden
) -> None:
    dataset = StreamingDataset(tokens, "train", 64, documents="separate", order="sequential")
    (folder,) = tokens.derived_folder.glob("packing-*")
    values = np.load(folder / name)
    values[1] = value
    with time_kept(folder / name):
        np.save(folder / name, values)
    dataset = StreamingDataset(tokens, "train", 64, documents="separate", order="sequential")
    with golden.refused("packing-damaged"):
        dataset[0]
    if value != 66:
        with golden.refused("packing-damaged"):
            dataset.will_need(0, 0, 1)


def test_index_that_is_truncated_while_it_is_read_is_an_error(tokens: TokenSet, golden: Golden) -> None:
    dataset = StreamingDataset(tokens, "train", 64, documents="separate", reader="pread")
    (folder,) = tokens.derived_folder.glob("packing-*")
    dataset[0]
    os.truncate(folder / PIECES, 128)
    with golden.refused("truncated-while-read"):
        dataset.__getitems__(range(len(dataset)))


def test_a_copy_is_trusted_once_it_was_read(tokens: TokenSet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    made = opened(tokens)
    caplog.clear()
    state = (made.folder / ROWS).stat()
    for name in (ROWS, PIECES):
        shutil.copy(made.folder / name, made.folder / "copy")
        os.replace(made.folder / "copy", made.folder / name)
    assert opened(tokens) == made
    assert caplog.text == ""
    assert (made.folder / ROWS).stat().st_mtime_ns == state.st_mtime_ns


def test_index_of_a_read_only_folder_is_in_the_cache(tokens: TokenSet, cache: Path) -> None:
    tokens.derived_folder.write_text("no folder")
    made = opened(tokens)
    assert made.folder.parent == cache / "highwater"
    tokens.derived_folder.unlink()
    assert opened(tokens) == made, "one that is there is taken, wherever it lies"
    assert not tokens.derived_folder.exists()


def test_where_nothing_can_be_written_at_all(tokens: TokenSet, cache: Path, golden: Golden) -> None:
    tokens.derived_folder.write_text("no folder")
    cache.write_text("no folder either")
    with golden.refused("packing-no-room"):
        opened(tokens)


def test_a_full_disk_leaves_nothing(tokens: TokenSet, cache: Path) -> None:
    """A limit on the size of files stands for it: write(2) fails half way."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            opened(tokens)
        except UserError as error:
            os._exit(0 if error.code == "packing-no-room" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [path for place in (tokens.derived_folder, cache / "highwater") for path in place.iterdir()] == []


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(
    "point", ["block", "packing.json:before_rename", "before_rename", "moved_aside", "after_rename"]
)
def test_a_kill_leaves_nothing_wrong(
    point: str, damaged: bool, tokens: TokenSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECES_OF_A_BLOCK", 50)
    made = opened(tokens)
    expected = content(made)
    if damaged:
        flip(made.folder / ROWS)
    else:
        shutil.rmtree(made.folder)
    name = point if ":" in point else f"packing:{point}"
    assert killed_at(name, lambda: opened(tokens)) is (damaged or point != "moved_aside")
    assert opened(tokens) == made
    assert content(made) == expected
    if point != "after_rename":  # then nothing is left to be done, and what is left is removed another time
        assert left_behind(made) == []


def test_several_processes_make_it_once(tokens: TokenSet, tmp_path: Path) -> None:
    def another_waits() -> bool:
        return any(log.read_text() for log in tmp_path.glob("*.log"))

    pids = []
    start, started = os.pipe()
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                atomic_files.on_point = lambda name: (
                    wait_for(another_waits) if name == "packing:block" else None
                )
                os.close(started)
                os.read(start, 1)
                handler = logging.FileHandler(tmp_path / f"{number}.log")
                logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
                os._exit(0 if opened(tokens).rows else 1)
            finally:
                os._exit(2)
        pids.append(pid)
    os.close(started)
    os.close(start)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4


GROWS = """
import sys
from pathlib import Path
import numpy as np
from data_loading.dataset.packing.index import packing_of
from data_loading.tokens.tokens import Tokens
from data_loading.tokens.lazy_array import LazyValues

class Starts(LazyValues):
    dtype = np.dtype("<u8")
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def _slice(self, start, stop):
        at = np.arange(start, stop, dtype="<u8")
        return at * 300 + at * at * 7919 % 281
class Many(Tokens):
    name, fingerprint, vocab_size, beside = "many", "many", 100, Path(sys.argv[1])
    def __init__(self, n):
        self.documents, self.tokens = Starts(n), None
def peak():  # VmHWM: ru_maxrss is also that of the process which started this one
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
found = packing_of(Many(1_000_000), [range(1_000_000 * 300)], 1024, 1, None)
before = peak()
found = packing_of(Many(4_000_000), [range(4_000_000 * 300)], 1024, 1, None)
print(peak() - before, found.pieces, found.efficiency)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_documents(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    grown_kb, made, efficiency = done.stdout.split()
    assert int(made) >= 4_000_000
    assert float(efficiency) > 0.99
    assert int(grown_kb) < 8000, "a list of the starts alone would be 24 MB more"


UNMAPS = """
import sys
from pathlib import Path
import numpy as np
from data_loading.dataset.packing.index import packing_of
from data_loading.tokens.token_set import TokenSet
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
path = Path(sys.argv[1], "lone.npy")
lone = TokenSet(path, np.load(path, mmap_mode="r"), None, None, 100, "lone")
packing_of(lone, [range(1 << 22)], 1024, 1, 1)
before = peak()
packing_of(lone, [range(1 << 26)], 1024, 1, 1)
print(peak() - before)
"""


def test_pages_that_were_read_for_the_ends_of_documents_leave_rss(tmp_path: Path) -> None:
    """128 MB of tokens are looked through."""
    tokens = np.zeros(1 << 26, "<u2")
    tokens[::300] = 1
    np.save(tmp_path / "lone.npy", tokens)
    done = subprocess.run(
        [sys.executable, "-c", UNMAPS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 30_000
