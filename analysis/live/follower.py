"""A study that is read again and again, and the sections of its page that have changed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from analysis.reading import Study
from analysis.report.curve_figure import Known
from analysis.report.study_page import report_of
from experiment_utils.errors import UserError
from memory.report.page import Page

_MOST_SHARE, _MOST_SLOWER = 0.2, 10.0
"""A study that takes long to read is read less often: in up to this share of the time, at most 10 times."""


@dataclass
class Follower:
    """The newest page of a study."""

    read: Callable[[], Study]
    """Reads the study."""
    given: str = ""
    """The study's runs as typed."""
    every_s: float = 10.0
    """Seconds between reads, at least."""
    x: str | None = None
    y: str = "val_loss"
    """Columns of the curves."""
    version: int = 0
    """Number of reads that changed a section."""
    trouble: str | None = None
    """Why the last read failed."""
    _page: Page | None = None
    _sections: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Title -> (HTML, the version at which it changed)."""
    _known: Known = field(default_factory=dict)
    _next_s: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self) -> None:
        """Read the study, unless it was read a moment ago.

        Raises:
            UserError: it was never read, and cannot be.
        """
        with self._lock:
            begun_s = time.monotonic()
            if begun_s < self._next_s:
                return
            try:
                self._take(self.read())
                self.trouble = None
            except UserError as error:
                if self._page is None:
                    raise
                self.trouble = error.render()
            took_s = time.monotonic() - begun_s
            pause_s = max(self.every_s, took_s / _MOST_SHARE)
            self._next_s = begun_s + min(pause_s, self.every_s * _MOST_SLOWER)

    def _take(self, study: Study) -> None:
        command = f"python -m analysis live {self.given}".strip()
        page = report_of(
            study, command=command, given=self.given, x=self.x, y=self.y, known=self._known,
            live={"version": 0, "every_s": self.every_s},
        ).page  # fmt: skip
        found = dict(page.sections())
        if found == {title: html for title, (html, _) in self._sections.items()}:
            return
        self.version += 1
        self._sections = {
            title: before
            if (before := self._sections.get(title)) and before[0] == html
            else (html, self.version)
            for title, html in found.items()
        }
        self._page = page

    def html(self) -> str:
        """The whole page.

        Raises:
            UserError: the study was never read, and cannot be.
        """
        self.refresh()
        assert self._page is not None
        return self._page.html().replace('{"version":0,', f'{{"version":{self.version},', 1)

    def changes(self, since: int) -> dict[str, Any]:
        """Sections that changed after version `since`, for JSON.

        Returns:
            `sections`: [title, HTML] of all sections in order; HTML is null for those that did not change.
        """
        with self._lock:
            return {
                "version": self.version,
                "subtitle": self._page.subtitle if self._page is not None else "",
                "trouble": self.trouble,
                "sections": [
                    [title, html if changed > since else None]
                    for title, (html, changed) in self._sections.items()
                ],
            }
