"""Facts to reproduce a study: commands, code, data, versions and machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from analysis.reading import Study
from analysis.report.details import Details
from experiment_utils.quantities import counted
from memory.report.page import Column, Page

_SHOWN = 20


def add_origins(page: Page, study: Study, details: Mapping[int, Details], best_command: str | None) -> None:
    """Add the section; nothing for foreign runs."""
    if not study.is_ours:
        return
    page.heading("How to reproduce")
    commands = typed_commands(study)
    if commands:
        page.text("What was typed, oldest first:")
        page.code("\n".join(commands[-_SHOWN:]))
    if best_command is not None:
        page.text("The best run alone:")
        page.code(best_command)
    page.table(
        [Column(""), Column("what", is_long=True), Column("runs", True)],
        [*_commits(details.values()), *_data(study, details), *_versions(details.values())],
    )


def typed_commands(study: Study) -> list[str]:
    """Commands of the submissions recorded in its folders, each once."""
    from slurm.records.submissions import submissions

    folders = dict.fromkeys(run.folder.parent for run in study.runs)
    return list(dict.fromkeys(one.command for folder in folders for one in submissions(folder)))


def _commits(details: Iterable[Details]) -> list[list[str]]:
    found: Counter[tuple[str, bool]] = Counter()
    for one in details:
        found.update(one.commits)
    return [
        ["code", commit + (", with changes that were not committed" if is_dirty else ""), str(runs)]
        for (commit, is_dirty), runs in found.most_common(_SHOWN)
    ]


def _data(study: Study, details: Mapping[int, Details]) -> list[list[str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for row, run in enumerate(study.runs):
        if run.value("data"):
            path = (details[row].data_path if row in details else None) or "-"
            found[str(run.value("data")), path, str(run.value("tokenizer"))] += 1
    return [
        ["data", f"fingerprint {fingerprint}, {path}, tokenizer {tokenizer}", str(runs)]
        for (fingerprint, path, tokenizer), runs in found.most_common(_SHOWN)
    ]


def _versions(details: Iterable[Details]) -> list[list[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    hosts: Counter[str] = Counter()
    for one in details:
        hosts.update(one.hosts)
        for name, version in one.versions.items():
            found[name][version] += 1
    rows = [
        ["version", f"{name} {version}", str(runs)]
        for name, versions in found.items()
        for version, runs in versions.most_common(4)
    ]
    hosts_text = ", ".join(host for host, _ in hosts.most_common(8))
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    return rows + (
        [[counted(len(hosts), "host"), hosts_text + more, str(sum(hosts.values()))]] if hosts else []
    )
