"""Meaning of sacct's MaxRSS, which depends on the plugin that gathers and on the version of Slurm.

Sources: the release notes and slurm.conf(5) of 22.05 to 25.11, src/plugins/jobacct_gather and
src/plugins/cgroup.
"""

from __future__ import annotations

from memory.accounting.sacct import SlurmFacts


def max_rss_meaning(slurm: SlurmFacts) -> str:
    """Explain MaxRSS in one sentence. It is never U, and a sample now and then misses a fast death."""
    every = f"every {slurm.gather_every_s:g} s" if slurm.gather_every_s else "at intervals"
    if slurm.gather.endswith("/cgroup"):
        return f"MaxRSS is {_in_cgroup(slurm)}, sampled {every}"
    if slurm.gather.endswith("/linux"):
        kind = "PSS" if "UsePss" in slurm.gather_params else "RSS, mapped files included,"
        return f"MaxRSS is the sum of {kind} as sampled {every}: no peak, and no sign of an OOM kill"
    if slurm.gather.endswith("/none"):
        return "MaxRSS is not gathered on this cluster (jobacct_gather/none)"
    return (
        "MaxRSS is a sample at intervals; with jobacct_gather/linux the sum of RSS with mapped files, with "
        "jobacct_gather/cgroup anon or all usage with page cache, depending on the version"
    )


def _in_cgroup(slurm: SlurmFacts) -> str:
    parts = slurm.version.split("-")[0].split(".")
    version = tuple(int(part) if part.isdigit() else 0 for part in (*parts, "0", "0")[:3])
    if not parts[0].isdigit():
        return "of the cgroup: anon up to 23.02, with page cache from 23.11 on"
    if "v1" in slurm.cgroup_plugin:
        return "anon memory of the cgroup (v1)"
    if version < (23, 11, 0):
        return "anon memory of the cgroup, without shared memory"
    if version >= (25, 11, 1) and "no_file_cache" in slurm.gather_params:
        return "the cgroup's memory without page cache (no_file_cache)"
    file = "current" if version < (24, 11, 0) else "peak"
    return f"the cgroup's memory.{file}, page cache included (anon on v1): at the limit it means nothing"
