"""How busy a GPU is and what it draws: asked of a driver made for the test, kept in samples and outcome."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpus import FakeCuda, fake_nvml
from tiny_run import ROOT

from memory.measure.gpu_activity import UNKNOWN, ActivityReader, GpuActivity, MeanActivity
from memory.record.gpu_use import GpuUse
from memory.record.ring import read_ring
from memory.record.samples import Sample
from memory.report.data.history import read_history
from memory.report.run_charts import gpu_activity
from memory.report.run_report import attempt_figure, lines_of
from memory.show.watch_lines import line
from memory.show.watch_view import View
from tests.golden_text import Golden

GB = 1 << 30
DRIVER = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu) {
    *gpu = (void *) 1;
    return strcmp(uuid, "GPU-aa-1") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *rates) { rates[0] = 97; rates[1] = 40; return BUSY; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *power) { *power = 310400; return POWER; }
"""
"""A libnvidia-ml of one GPU. BUSY, POWER: what the two questions return; 3 is NVML_ERROR_NOT_SUPPORTED."""
RUN = """
import sys, time
from types import SimpleNamespace
GB = 1 << 30
sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(
    is_initialized=lambda: True, current_device=lambda: 0, memory_allocated=lambda: 30 * GB,
    memory_stats=lambda device: {"reserved_bytes.all.current": 33 * GB},
    get_device_properties=lambda device: SimpleNamespace(name="H100", total_memory=80 * GB, uuid=UUID),
    mem_get_info=lambda device: (39 * GB, 80 * GB),
))
from memory import LeakMonitor, record_to, stage
monitor = LeakMonitor()
with record_to(sys.argv[1], attempt=1), stage("train"):
    for step in range(12):
        monitor.sample(step)
        time.sleep(0.2)
"""


def sampled(folder: Path, uuid: str = "aa-1", **answers: int) -> list[GpuActivity]:
    """Activities in the samples of a run on that GPU, whose driver gives these answers."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (folder / "driver.c").write_text(DRIVER)
    macros = [f"-D{name}={value}" for name, value in ({"BUSY": 0, "POWER": 0} | answers).items()]
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", *macros, folder / "driver.c", "-o", library], check=True)
    command = [sys.executable, "-m", "memory", "run", "--output", str(folder), "--", sys.executable, "-c"]
    subprocess.run(
        [*command, RUN.replace("UUID", repr(uuid)), str(folder)],
        cwd=ROOT, check=True, timeout=120, env=os.environ | {"LD_LIBRARY_PATH": str(folder)},
    )  # fmt: skip
    ring = read_ring(folder / "memory.ring")
    assert ring is not None
    return [
        GpuActivity(sample.gpu_busy_percent, sample.gpu_power_mw)
        for sample in ring.latest
        if sample.gpu_used_bytes is not None
    ]


def test_samples_and_outcome_have_what_the_driver_reports(tmp_path: Path, golden: Golden) -> None:
    assert set(sampled(tmp_path)) == {GpuActivity(97, 310400)}
    use = json.loads((tmp_path / "outcome.json").read_text())["gpu"]
    assert use == {
        "peak_used_bytes": 41 * GB, "total_bytes": 80 * GB, "busy_percent": 97.0, "power_w": 310.4,
    }  # fmt: skip
    history = read_history(tmp_path)
    assert [chart.y_axis.unit for chart in gpu_activity(history.last.main)] == ["percent", "watts"]
    shown = [text for text in lines_of(history) if text.lstrip().startswith("GPU ")]
    golden.text("\n".join(text.rstrip() for text in shown))
    assert attempt_figure(history, history.last).axes


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ({"POWER": 3}, GpuActivity(97, None)),
        ({"BUSY": 3}, GpuActivity(None, 310400)),
        ({"uuid": "bb-2"}, UNKNOWN),
    ],
)
def test_what_the_driver_does_not_report_is_not_known(
    tmp_path: Path, answers: dict[str, Any], known: GpuActivity
) -> None:
    assert set(sampled(tmp_path, **answers)) == {known}
    use = json.loads((tmp_path / "outcome.json").read_text())["gpu"]
    assert [use["busy_percent"], use["power_w"]] == [
        known.busy_percent, None if known.power_mw is None else 310.4,
    ]  # fmt: skip


def test_machine_without_a_driver_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(uuid="aa-1")
    cuda = SimpleNamespace(get_device_properties=lambda device: properties)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    reader = ActivityReader()
    assert reader.read(0, 1.0) == UNKNOWN  # the real nvidia-ml-py, which finds no library here
    assert reader._questions == [None, None]
    assert reader.read(0, 9.0) == UNKNOWN


def test_driver_is_asked_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(str(tmp_path / "fake-nvml"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=FakeCuda()))
    reader, asked = ActivityReader(), [0]

    def busy() -> int:
        asked[0] += 1
        return asked[0]

    assert reader.read(0, 1.0) == UNKNOWN, "torch does not know the device's name"
    reader._questions = [busy, None]
    found = [reader.read(0, 2 + number / 10).busy_percent for number in range(25)]
    assert asked == [3]
    assert found == [1] * 10 + [2] * 10 + [3] * 5
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


def test_means_are_over_time() -> None:
    mean = MeanActivity()
    assert mean.means == (None, None)
    for time_s, busy, power in ((100, 0, 100), (101, 90, None), (104, 50, None)):
        mean.add(time_s, GpuActivity(busy, power))
    assert mean.means == ((0 * 1 + 90 * 3) / 4, 100.0)
    use = GpuUse()
    use.add(Sample(1.0))
    assert use.to_json() is None


def test_watch_shows_the_activity(golden: Golden) -> None:
    sample = Sample(
        1.0, unreclaimable_bytes=1, gpu_used_bytes=41 * GB, gpu_total_bytes=80 * GB,
        gpu_reserved_bytes=33 * GB, gpu_busy_percent=97, gpu_power_mw=310400,
    )  # fmt: skip
    golden.text(line(View("run", sample)).partition(" | ")[2])
