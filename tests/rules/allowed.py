"""What each room still breaks: `allowed/ROOM.txt` lists it, and the lists can only shrink.

A line is `PATH RULE COUNT`. Counts are kept by file, so edits elsewhere in a file do not disturb a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.rules.english import english_findings
from tests.rules.layout import layout_findings
from tests.rules.sources import Finding, rooms

LISTS = Path(__file__).parent / "allowed"
UPDATE = "python -m tests.rules update"

Counts = dict[tuple[str, str], int]
"""(path, rule) -> count."""


def findings_by_room(root: Path) -> dict[str, list[Finding]]:
    """Everything in a checkout that breaks a rule."""
    by_room = rooms(root)
    product = {
        source.module: source for sources in by_room.values() for source in sources if source.is_python
    }
    found: dict[str, list[Finding]] = {}
    for room, sources in by_room.items():
        python = [source for source in sources if source.is_python]
        found[room] = [*english_findings(sources), *layout_findings(room, python, product)]
    return found


def read_allowed(room: str, lists: Path = LISTS) -> Counts:
    """Listed counts of a room; a room without a list breaks no rule."""
    path = lists / f"{room}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {(path, rule): int(count) for path, rule, count in (line.split() for line in lines)}


def differences(findings: Iterable[Finding], allowed: Counts) -> Iterator[str]:
    """A line for each finding that is not as listed. No lines: the list is exact."""
    left = dict(allowed)
    for finding in sorted(findings, key=lambda finding: (finding.path, finding.rule)):
        listed = left.pop((finding.path, finding.rule), 0)
        if finding.count > listed:
            yield f"{finding.path} {finding.rule}: {finding.count}, allowed {listed} ({finding.where})"
        elif finding.count < listed:
            yield f"{finding.path} {finding.rule}: only {finding.count} of {listed} left, run `{UPDATE}`"
    for (path, rule), listed in left.items():
        yield f"{path} {rule}: none of {listed} left, run `{UPDATE}`"


def update(root: Path, lists: Path = LISTS, allow_more: bool = False) -> list[str]:
    """Rewrite the lists from the code. A list in which a rule's total grows is left as it is.

    Totals are compared by room and rule, so a file can be renamed or moved within its room.

    Args:
        root: The checkout.
        lists: Folder of the lists.
        allow_more: Rewrite lists that grow, too.

    Returns:
        One line for each room and rule that grew.
    """
    refused = []
    for room, findings in findings_by_room(root).items():
        counts: Counts = {(finding.path, finding.rule): finding.count for finding in findings}
        before, after = _totals(read_allowed(room, lists)), _totals(counts)
        more = [
            f"{room} {rule}: {after[rule]}, before {before[rule]}"
            for rule in after
            if after[rule] > before[rule]
        ]
        refused += more
        if more and not allow_more:
            continue
        text = "".join(f"{path} {rule} {count}\n" for (path, rule), count in sorted(counts.items()))
        (lists / f"{room}.txt").unlink(missing_ok=True)
        if text:
            (lists / f"{room}.txt").write_text(text)
    return refused


def _totals(counts: Counts) -> Counter[str]:
    return Counter(rule for (_, rule), count in counts.items() for _ in range(count))
