"""What sacct's MaxRSS is, which depends on the plugin that gathers and on the version of Slurm.

Sources: the release notes and slurm.conf(5) of 22.05 to 25.11, src/plugins/jobacct_gather and
src/plugins/cgroup.
"""

from __future__ import annotations

from memory.accounting.sacct import SlurmFacts


def max_rss_meaning(slurm: SlurmFacts) -> str:
    """In one sentence. None of its meanings is U, and a sample now and then misses a fast death."""
    every = f"every {slurm.gather_every_s:g} s" if slurm.gather_every_s else "at intervals"
    version = _version(slurm.version)
    if slurm.gather.endswith("/cgroup"):
        return f"MaxRSS is {_of_cgroup(version, slurm)}, sampled {every}"
    if slurm.gather.endswith("/linux"):
        kind = "PSS" if "UsePss" in slurm.gather_params else "RSS, mapped files included,"
        return f"MaxRSS is the sum of {kind} as sampled {every}: no peak, and no sign of an OOM kill"
    if slurm.gather.endswith("/none"):
        return "MaxRSS is not gathered on this cluster (jobacct_gather/none)"
    return (
        "MaxRSS is a sample at intervals; with jobacct_gather/linux the sum of RSS with mapped files, with "
        "jobacct_gather/cgroup anon or all usage with page cache, depending on the version"
    )


def _of_cgroup(version: tuple[int, int, int] | None, slurm: SlurmFacts) -> str:
    if version is None:
        return "of the cgroup: anon up to 23.02, with page cache from 23.11 on"
    if "v1" in slurm.cgroup_plugin:
        return "anon memory of the cgroup (v1)"
    if version < (23, 11, 0):
        return "anon memory of the cgroup, without shared memory"
    if version >= (25, 11, 1) and "no_file_cache" in slurm.gather_params:
        return "the cgroup's memory without page cache (no_file_cache)"
    if version < (24, 11, 0):
        return "the cgroup's memory.current, page cache included (anon on v1): at the limit it means nothing"
    return "the cgroup's memory.peak, page cache included (anon on v1): at the limit it means nothing"


def _version(text: str) -> tuple[int, int, int] | None:
    parts = text.split("-")[0].split(".")
    numbers = [int(part) if part.isdigit() else 0 for part in (*parts, "0", "0")[:3]]
    return (numbers[0], numbers[1], numbers[2]) if parts[0].isdigit() else None
