"""Room for a token set: refused before it begins where it cannot fit, told while it goes on."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer import disk_space
from data_loading.pretokenizer.disk_space import DiskWatch, free_bytes, held_bytes
from data_loading.pretokenizer.job import pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.source import Source
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.tokenizer import BytesTokenizer
from data_loading.tokens.set_files import SetFiles
from tests.golden_text import Golden

MB = 1 << 20


@pytest.fixture
def text(tmp_path: Path) -> Source:
    (tmp_path / "a.txt").write_bytes(b"high water mark\n" * 300_000)
    return TextFile(tmp_path / "a.txt")


def make(source: Source, output: Path, lines: list[str] | None = None, **options: Any) -> Any:
    log = (lambda line: None) if lines is None else lines.append
    return pretokenize(source, BytesTokenizer(), output, Options(**options), log)


class TestBefore:
    def test_what_cannot_fit_is_refused_and_nothing_is_written(
        self, text: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 4 * MB)
        with golden.refused("disk-space"):
            make(text, tmp_path / "out" / "x.npy")
        assert list((tmp_path / "out").iterdir()) == []

    def test_what_just_fits_is_made(
        self, text: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 10 * MB)
        assert make(text, tmp_path / "x.npy").made

    def test_what_an_earlier_attempt_has_written_counts_as_room(
        self, text: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        files = SetFiles(tmp_path / "x.npy")
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 2 * MB)
        files.partial.mkdir()
        (files.partial / "tokens.npy").write_bytes(b"x" * 2 * MB)
        assert held_bytes(files.partial) >= 2 * MB
        with golden.refused("disk-space"):
            make(text, tmp_path / "x.npy")  # not of this text: it is removed
        real = disk_space.held_bytes
        monkeypatch.setattr(disk_space, "held_bytes", lambda folder: real(folder) + 8 * MB)
        assert make(text, tmp_path / "x.npy").made

    def test_a_start_alone_refuses_nothing_but_warns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        letters = np.random.default_rng(0).integers(97, 123, 6_000_000, np.uint8).tobytes()
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(letters, 1))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 8 * MB)
        lines: list[str] = []
        assert make(TextFile(tmp_path / "a.txt.gz"), tmp_path / "x.npy", lines).made
        (warning,) = [line for line in lines if line.startswith("WARNING")]
        golden.text(warning)

    def test_what_may_fit_is_begun_with_a_warning(
        self, text: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 9 * MB)
        lines: list[str] = []
        assert make(text, tmp_path / "x.npy", lines).made
        (warning,) = [line for line in lines if line.startswith("WARNING")]
        golden.text(warning)

    def test_nobody_looks_closer_where_there_is_plenty(
        self, text: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def looked(*_: Any) -> None:
            raise AssertionError

        monkeypatch.setattr(disk_space, "forecast", looked)
        assert make(text, tmp_path / "x.npy").made


class TestWhile:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [100.0]
        monkeypatch.setattr(disk_space.time, "monotonic", lambda: now[0])
        return now

    def watched(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        clock: list[float],
        total: int | None,
        free: int,
    ) -> list[str]:
        """Half a million bytes a second, a token of 2 bytes each, behind an earlier attempt."""
        lines: list[str] = []
        watch = DiskWatch(SetFiles(tmp_path / "x.npy"), 2, total, lines.append, (10**9, 10**9))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: free)
        for second in range(1, 30):
            clock[0] = 100.0 + second
            watch.update(10**9 + 500_000 * second, 10**9 + 500_000 * second)
        return lines

    def test_too_little_for_the_rest_is_told_once_with_the_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], golden: Golden
    ) -> None:
        (line,) = self.watched(tmp_path, monkeypatch, clock, 2 * 10**9, 1_200_000_000)
        golden.text(line)

    def test_enough_for_the_rest_is_not_told_however_little_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
    ) -> None:
        assert self.watched(tmp_path, monkeypatch, clock, 1_015_000_000, 26_000_000) == []

    @pytest.mark.parametrize(("free", "is_told"), [(200_000_000, True), (400_000_000, False)])
    def test_an_input_without_known_end_is_told_minutes_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], free: int, is_told: bool
    ) -> None:
        assert len(self.watched(tmp_path, monkeypatch, clock, None, free)) == is_told


def test_a_folder_that_is_not_there_yet_lies_on_the_disk_of_the_one_above(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "none" / "deep" / "x.npy") == pytest.approx(free_bytes(tmp_path), rel=0.05)
