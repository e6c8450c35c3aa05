"""Every site of conf/slurm composes, names its public source, and asks for what sbatch can take."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from composed_once import kept_composer
from recorded_slurm import planned
from tiny_run import tiny_config

from conf.command_line.request import read_run
from slurm.cluster import Cluster, ask
from slurm.cluster.rejections import problems

SITES = sorted(path.stem for path in (Path(__file__).resolve().parents[3] / "conf" / "slurm").glob("*.yaml"))


@pytest.mark.parametrize("site", SITES)
def test_a_site(site: str, tmp_path: Path, root: Path) -> None:
    text = (root / "conf" / "slurm" / f"{site}.yaml").read_text()
    assert site == "default" or re.search(r"Source:\s+https?:", text)
    slurm = read_run([f"slurm={site}"], kept_composer()).slurm
    assert slurm.name == site
    config = dataclasses.replace(tiny_config(tmp_path), slurm=slurm)
    found = ask(config, planned(config))
    assert problems([(config, found)], Cluster()) == []
    assert ("gres" in found.options) == (slurm.gpus_per_node > 0)
    assert ("mem" in found.options) == (slurm.mem is not None)
    assert any("HF_HUB_OFFLINE=1" in line for line in found.setup) == slurm.offline
