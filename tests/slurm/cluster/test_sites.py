"""Site files: those of conf/slurm, and the one that doctor --write makes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from composed_once import kept_composer
from recorded_slurm import VERSIONS, planned, recorded
from tiny_run import tiny_config

from conf.command_line.request import read_run
from conf.composing.compose import Composer
from slurm.__main__ import main
from slurm.cluster import Cluster, ask
from slurm.cluster.resources import key_conflicts
from slurm.cluster.site_file import site_file
from tests.golden_text import Golden

SITES = sorted(path.stem for path in (Path(__file__).resolve().parents[3] / "conf" / "slurm").glob("*.yaml"))


@pytest.mark.parametrize("site", SITES)
def test_a_site(site: str, tmp_path: Path, root: Path) -> None:
    text = (root / "conf" / "slurm" / f"{site}.yaml").read_text()
    assert site == "default" or re.search(r"Source:\s+https?:", text)
    assert not re.search(r"^account:|/home/|/scratch/|/users/", text, re.MULTILINE), "of one user"
    slurm = read_run([f"slurm={site}"], kept_composer()).slurm
    assert slurm.name == site
    config = dataclasses.replace(tiny_config(tmp_path), slurm=slurm)
    found = ask(config, planned(config))
    assert list(key_conflicts(slurm)) == []
    assert ("gres" in found.options) == (slurm.gpus_per_node > 0)
    assert ("mem" in found.options) == (slurm.mem is not None)
    assert any("HF_HUB_OFFLINE=1" in line for line in found.setup) == slurm.offline


@pytest.mark.parametrize("version", VERSIONS)
def test_written_site_file_composes(version: str, tmp_path: Path, golden: Golden) -> None:
    """As it is, and with every key that it proposes."""
    cluster = recorded(version)
    text = site_file(cluster, "mine")
    golden.text(text)
    assert cluster.user not in text
    keys = "account|qos|gpu_type|gpu_mem|cpus_per_task|time|offline|setup"
    proposed = re.sub(rf"^# (?=({keys}): )", "", text, flags=re.MULTILINE)
    for name, written in (("mine", text), ("all", proposed)):
        folder = tmp_path / name
        (folder / "slurm").mkdir(parents=True)
        (folder / "slurm" / "mine.yaml").write_text(written)
        slurm = read_run(["slurm=mine"], Composer(folder)).slurm
        assert slurm.name == "mine"
        assert slurm.partition in cluster.partitions
        assert slurm.account in (None, cluster.default_account)
        assert list(key_conflicts(slurm)) == []
        has_gpus = bool(cluster.partitions[slurm.partition or ""].most_gpus())
        assert (slurm.gpus_per_node == 1) == has_gpus
    assert "conda" in slurm.setup[-1]
    assert slurm.offline


def test_site_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.commands.doctor.read_cluster", lambda: recorded("23.11"))
    command = ["doctor", "--write", "lab", "--config-dir", str(tmp_path)]
    path = tmp_path / "slurm" / "lab.yaml"
    assert main(command) == 0
    assert path.read_text() == site_file(recorded("23.11"), "lab")
    path.write_text("mine")
    assert main(command) == 2
    assert path.read_text() == "mine"
    assert main([*command, "--overwrite"]) == 0
    assert path.read_text() != "mine"
    assert main(["doctor", "--write", "../lab"]) == 2


def test_site_file_needs_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.commands.doctor.read_cluster", Cluster)
    assert main(["doctor", "--write", "--config-dir", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
