"""Whether a run fits: plans, refusals, and the micro-batch of `auto`."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import ROOT, make_run, run_here, tiny_config

from conf.budget import micro_batch as micro_batch_of
from conf.schema import Config, Dataset, Model, Tokenizer, Training
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_bytes
from memory.estimate import available, constants
from memory.estimate.available import Room
from memory.estimate.estimate import STEP, Estimate, Part
from models import build_model
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status, update_run
from training.plan.memory_parts import _split_block, compilers_at_once, estimate_run
from training.plan.memory_plan import MemoryNeeds, divisors
from training.plan.run_plan import make_plan, resolve
from training.run.micro_batch import died_for_memory

GB = 1 << 30
MB = 1 << 20
VOCAB = 50_257


def config_of(folder: Path, width: int = 256, **training: Any) -> Config:
    options = {"max_steps": 10, "effective_batch": 32, "device": "cpu"}
    return Config(
        model=Model(name=f"{width}d", d_model=width),
        dataset=Dataset(name="synthetic", path=f"synthetic:uniform:{VOCAB}:10M:0"),
        tokenizer=Tokenizer(name="ids"),
        training=Training(**(options | training)),
        runs_dir=str(folder / "runs"),
    )


def limited(free: int) -> Room:
    return Room(free, "/job", 0)


def needs(config: Config, free: int) -> MemoryNeeds:
    return MemoryNeeds(resolve(config), limited(free), vocab_size=VOCAB)


def test_needs_are_the_sum_of_their_parts(tmp_path: Path, golden: Golden) -> None:
    plan = make_plan(config_of(tmp_path), tokenize=False, room=limited(32 * GB))
    told = json.loads(json.dumps(plan.to_json()["memory"]))
    assert told["host_bytes"] == sum(told["host_parts"].values()) == told["host_by_phase"][told["host_phase"]]
    assert told["fits"] is True
    assert told["largest_micro_batch"] == 32
    assert told["recommended_mem_bytes"] > told["host_bytes"]
    page = plan.render()
    golden.lines(page, "/job", numbers=False)
    mem_mb = told["recommended_mem_bytes"] >> 20
    assert f"--mem={mem_mb // 1024}G " in page or f"--mem={mem_mb}M " in page
    rows = (f"{label:<8}{text}" for label, text in plan.memory.rows())
    assert max(map(len, rows)) <= 80


def test_compilers_of_an_empty_cache_count_when_they_run(tmp_path: Path) -> None:
    """They are gone by the steps that follow: the peak is that of the worst moment, no sum of all."""
    config = config_of(tmp_path, 64, compile=True, micro_batch=1, seq_len=16)
    told = make_plan(config, tokenize=False, room=limited(32 * GB)).to_json()["memory"]
    at, kernels = told["host_by_phase"], constants.COMPILER_KERNEL.in_bytes * constants.COMPILERS_AT_ONCE
    assert told["host_phase"].startswith("compile_")
    assert told["host_bytes"] > told["warm_bytes"]
    assert told["host_parts"]["C++ compilers"] == max(kernels, constants.COMPILER_HEADER.in_bytes)
    assert at["compile_forward"] - at["build"] >= constants.COMPILER_HEADER.in_bytes
    assert told["recommended_mem_bytes"] > told["host_bytes"]  # a new node is cold
    page = make_plan(config, tokenize=False, room=limited(32 * GB)).render()
    assert format_bytes(told["warm_bytes"]) in page


def test_compilers_are_not_the_peak_of_a_large_step(tmp_path: Path) -> None:
    config = config_of(tmp_path, compile=True, micro_batch=64, effective_batch=64, seq_len=512)
    told = make_plan(config, tokenize=False, room=limited(32 * GB)).to_json()["memory"]
    assert told["host_bytes"] == told["warm_bytes"]
    assert "C++ compilers" not in told["host_parts"]


def test_plan_without_compile_has_no_compilers(tmp_path: Path) -> None:
    plan = make_plan(config_of(tmp_path), tokenize=False, room=limited(32 * GB))
    assert plan.to_json()["memory"]["warm_bytes"] == plan.to_json()["memory"]["host_bytes"]
    assert "torch.compile" not in plan.render()


@pytest.mark.parametrize("compiled", [False, True])
def test_plan_depends_on_the_build_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """A CPU run of the CUDA build was killed in the memory that the plan recommended."""
    config = config_of(tmp_path, 64, compile=compiled)
    planned = {}
    for build in ("cpu", "cuda", "rocm"):
        for place in ("memory.estimate.constants", "training.plan.memory_parts", "training.plan.memory_plan"):
            monkeypatch.setattr(f"{place}.torch_build", lambda build=build: build)
        planned[build] = make_plan(config, tokenize=False, room=limited(32 * GB)).to_json()["memory"]
        assert planned[build]["torch_build"] == build
    more = int(constants.FRAMEWORK_BASE.cuda or 0) - int(constants.FRAMEWORK_BASE.value)
    assert more > 100 * MB
    for amount in ("host_bytes", "own_bytes", "warm_bytes", "resumed_bytes"):
        assert planned["cuda"][amount] - planned["cpu"][amount] == more
        assert planned["rocm"][amount] == planned["cuda"][amount], "not measured"
    assert any("ROCm" in name for name in planned["rocm"]["host_parts"])


def test_gpu_memory_includes_cuda_and_its_libraries(tmp_path: Path) -> None:
    found = needs(config_of(tmp_path, 64, device="cuda"), 32 * GB).at(8)
    parts = found.at_gpu_peak()
    assert parts["CUDA context"] == constants.CUDA_CONTEXT.in_bytes
    assert parts["cuBLAS workspaces"] == constants.CUBLAS_WORKSPACES.in_bytes
    assert parts["allocator's cache"] > 0
    assert found.at_host_peak()["CUDA"] == constants.CUDA_HOST.in_bytes


def test_graphs_keep_the_memory_of_a_step_during_evaluations(tmp_path: Path) -> None:
    def estimated(kept: dict[str, Any], **changes: Any) -> Estimate:
        config = resolve(config_of(tmp_path, 64, device="cuda", **changes))
        return estimate_run(config, vocab_size=VOCAB, micro_batch=8, kept=kept)

    eager, graphed = estimated({}, cuda_graph=False), estimated({})
    made = max(eager.gpu_at(phase) for phase in STEP) - eager.gpu_at("checkpoint")
    for phase in ("checkpoint", "evaluate"):
        assert graphed.gpu_at(phase) - eager.gpu_at(phase) == pytest.approx(made, rel=0.05)
    assert all(graphed.gpu_at(phase) == eager.gpu_at(phase) for phase in STEP)
    assert estimated({"cuda_graph": False}).gpu_bytes == eager.gpu_bytes
    graphs = set(graphed.at_gpu_peak()) - set(eager.at_gpu_peak())
    assert not graphs & set(estimated({}, on_spike="skip").at_gpu_peak())
    assert graphs


def test_graphs_take_no_memory_that_a_larger_micro_batch_needs(tmp_path: Path) -> None:
    def asked(gpu_bytes: int, **changes: Any) -> MemoryNeeds:
        room = dataclasses.replace(limited(32 * GB), gpu_total_bytes=gpu_bytes)
        config = config_of(tmp_path, 64, device="cuda", loss_chunk=1024, **changes)
        return MemoryNeeds(resolve(config), room, vocab_size=VOCAB)

    graphed, eager = (asked(80 * GB, cuda_graph=is_on).at(8).gpu_bytes for is_on in ("auto", False))
    assert eager < graphed
    small = (eager + graphed) // 2
    assert asked(small).at(8).gpu_bytes == eager
    assert asked(small).fits(asked(small).at(8))
    assert not asked(small).fits(asked(small, cuda_graph=True).at(8))


def test_on_a_gpu_triton_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "4")
    found = needs(config_of(tmp_path, 64, compile=True, device="cuda"), 32 * GB).at(8)
    names = {part.name for part in found.parts}
    assert "C++ compilers" not in names
    held = constants.TRITON_POOL.in_bytes + 4 * constants.TRITON_WORKER.in_bytes
    assert found.at_host_peak()["Triton compilers"] == held


@pytest.mark.parametrize("options", [{}, {"tied_head": False}, {"n_experts": 4}, {"family": "mingru"}])
def test_page_locked_copy_of_a_checkpoint_is_rounded_up_tensor_by_tensor(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    config = config_of(tmp_path, 96, device="cuda", checkpoint_writing="background")
    config = resolve(dataclasses.replace(config, arch=dataclasses.replace(config.arch, **options)))
    model = build_model(config.model, config.arch, VOCAB, config.training.seq_len)
    tensors = [4 * p.numel() for p in model.parameters()]
    rounded = 3 * sum(1 << (size - 1).bit_length() for size in tensors)  # weights, and AdamW's two moments
    held = needs(config, 32 * GB).at(8).at_host_peak()["checkpoint copy"]
    assert held == pytest.approx(rounded, rel=0.01)
    assert held > 3.3 * sum(tensors)


@pytest.mark.parametrize(("set_to", "run"), [("", 2), ("4", 4), ("0", 2), ("many", 2)])
def test_number_of_compilers(set_to: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", set_to)
    assert compilers_at_once() == run


def test_savings_are_those_of_a_plan_with_the_override(tmp_path: Path) -> None:
    """As it stands in run.json, where `explain` finds it when the run has died."""
    now = {"micro_batch": 8, "loss_chunk": 1024}
    config = config_of(tmp_path, **now)
    told = make_plan(config, tokenize=False, room=limited(32 * GB)).to_json()["memory"]["savings"]
    assert set(told) == {
        "training.micro_batch=4",
        "training.activation_checkpointing=true",
        "training.loss_chunk=512",
    }
    for words, saved in told.items():
        name, _, value = words.removeprefix("training.").partition("=")
        changed = config_of(tmp_path, **now | {name: value == "true" or int(value)})
        alone = make_plan(changed, tokenize=False, room=limited(32 * GB)).memory.estimate
        assert saved == {"host_bytes": alone.host_bytes, "gpu_bytes": alone.gpu_bytes}


def test_nearest_that_fits_is_among_the_savings(tmp_path: Path) -> None:
    config = config_of(tmp_path, micro_batch=32, seq_len=512)
    fitting = needs(config, 32 * GB).at(1).host_bytes
    plan = needs(config, int(1.2 * fitting)).plan(32)
    assert plan.problem is not None
    nearest = needs(config, int(1.2 * fitting)).nearest(32)
    assert nearest is not None
    assert plan.to_json()["savings"][nearest[0]]["host_bytes"] == nearest[1].host_bytes


@pytest.mark.parametrize(
    ("width", "micro_batch", "typed"), [(256, 8, "training.micro_batch=4"), (64, 1, "model=")]
)
def test_advice_close_to_the_limit_saves_memory(
    tmp_path: Path, width: int, micro_batch: int, typed: str, golden: Golden
) -> None:
    """Recomputing one window's activations takes a third more time, and saves a hundredth."""
    config = config_of(tmp_path, width, micro_batch=micro_batch, seq_len=64, checkpoint_writing="background")
    needed = needs(config, 32 * GB).at(micro_batch).host_bytes
    plan = make_plan(config, tokenize=False, room=limited(int(needed * 1.02)))
    assert plan.memory is not None
    (line,) = (line for line in plan.memory.advice if typed in line)
    golden.text(line, numbers=False)


def test_memory_lowers_the_micro_batch_and_never_raises_it(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    plenty = make_plan(config, tokenize=False, room=Room())
    assert plenty.budget.micro_batch == micro_batch_of(config.training) == 32
    assert plenty.memory.fits, "what is not known refuses nothing"
    little = make_plan(config, tokenize=False, room=limited(int(1.6 * GB)))
    assert little.budget.micro_batch in (4, 8, 16)
    assert little.budget.micro_batch * little.budget.accumulation == 32
    assert little.memory.fits
    assert little.memory.estimate.host_bytes * 1.1 <= 1.6 * GB
    assert little.identity == plenty.identity, "how it is computed is not what is computed"
    options = {"seq_len": 2048, "batch_tokens": 1 << 20, "effective_batch": None, "max_steps": 2}
    long = make_plan(config_of(tmp_path, **options), tokenize=False, room=Room())
    assert long.budget.micro_batch == 8, "no more than 16,384 tokens, however much memory there is"


@pytest.mark.usefixtures("cpu_build")
def test_run_that_cannot_fit_is_refused_with_the_nearest(tmp_path: Path, golden: Golden) -> None:
    asked = needs(config_of(tmp_path, micro_batch=32), int(1.6 * GB))
    found = asked.plan(32)
    assert found.problem is not None
    with pytest.raises(UserError) as error:
        found.check(refuse=True)
    told = str(error.value)
    assert error.value.problems[0].where == "training.micro_batch"
    golden.text(told, numbers=False)
    (warned,) = found.check(refuse=False)[:1]
    assert "memory.refuse=false" in warned

    nearest = asked.nearest(32)
    assert nearest is not None
    assert nearest[0] in told
    typed = dict(word.removeprefix("training.").split("=") for word in nearest[0].split())
    mended = config_of(tmp_path, micro_batch=int(typed.pop("micro_batch")))
    assert typed == {}, "a smaller micro-batch is enough, and costs least"
    assert make_plan(mended, tokenize=False, room=limited(int(1.6 * GB))).memory.fits


def test_checkpointing_is_the_last_saving(tmp_path: Path, golden: Golden) -> None:
    config = config_of(tmp_path, width=192, seq_len=2048, micro_batch=2, effective_batch=2)
    free = needs(config, GB).at(1).host_bytes
    asked = needs(config, int(0.9 * free))
    nearest = asked.nearest(2)
    assert nearest is not None
    assert "training.activation_checkpointing=true" in nearest[0]
    assert nearest[1].host_bytes < 0.9 * free
    assert needs(config, 300 * MB).nearest(2) is None
    problem = needs(config, 300 * MB).plan(2).problem
    assert problem is not None
    golden.text(problem.what, numbers=False)


def test_run_that_fits_without_its_margin_is_not_refused(tmp_path: Path) -> None:
    """32d in 330 MB: not even one window was to fit, and `auto` started it with one."""
    config = config_of(tmp_path, micro_batch="auto", checkpoint_writing="foreground")
    smallest = min(needs(config, 32 * GB).at(size).host_bytes for size in (1, 2, 4, 8, 16, 32))
    asked = needs(config, int(1.02 * smallest))
    plan = asked.plan(asked.micro_batch())
    assert plan.fits
    assert any("(memory.margin)" in text for _, text in plan.rows())
    least = needs(config, 32 * GB)
    again = dataclasses.replace(config.training, activation_checkpointing=True)
    saved = dataclasses.replace(config, training=again)
    smallest = min(least.at(size, saved).host_bytes for size in (1, 2, 4))
    problem = needs(config, int(1.02 * smallest)).plan(32).problem
    assert problem is not None
    assert "(memory.margin)" in problem.what
    assert "model=" in problem.what


@given(st.integers(200, 6000), st.sampled_from([1, 6, 30, 64]))
def test_largest_micro_batch_is_the_largest_that_fits(free_mb: int, batch: int) -> None:
    config = config_of(Path("/tmp"), width=64, effective_batch=batch)
    asked = needs(config, free_mb * MB)
    largest = asked.plan(1).largest_micro_batch
    fitting = [size for size in divisors(config.training) if asked.fits(asked.at(size), 0.1)]
    assert largest == max(fitting, default=None)


def test_auto_is_pinned_and_only_gets_smaller(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    asked = needs(config, 32 * GB)
    assert asked.micro_batch() == 32
    assert asked.micro_batch(pinned=4) == 4, "never grows"
    assert asked.micro_batch(pinned=4, after_oom=True) == 2
    assert asked.micro_batch(pinned=1, after_oom=True) == 1
    busy = MemoryNeeds(resolve(config), Room(32 * GB, "/job", 31 * GB), vocab_size=VOCAB)
    assert busy.micro_batch(pinned=32) == 32, "what neighbours hold at this moment changes no run"
    assert needs(config, int(1.6 * GB)).micro_batch(pinned=32) < 32, "what can never fit does"
    assert needs(config_of(tmp_path, micro_batch=16), GB).micro_batch(pinned=4) == 16, "as typed"


def test_auto_uses_its_share_of_a_gpu(tmp_path: Path) -> None:
    config = config_of(tmp_path, device="cuda", precision="bf16", effective_batch=64, seq_len=256)

    def asked(**gpu: int) -> MemoryNeeds:
        kept = {"device": "cuda", "precision": "bf16", "loss_chunk": 256}
        room = Room(32 * GB, "/job", 0, gpu_total_bytes=80 * GB, **gpu)
        return MemoryNeeds(resolve(config), room, vocab_size=VOCAB, kept=kept)

    whole = asked()
    assert whole.micro_batch() == 64
    share = whole.at(16).gpu_bytes * 5 // 4
    assert asked(gpu_share_bytes=share).micro_batch() == 16
    assert asked(gpu_share_bytes=79 * GB, gpu_used_bytes=80 * GB - share).micro_batch() == 16
    assert asked(gpu_share_bytes=share).fits(whole.at(64)), "as typed, it has what is free"


def test_nearest_that_fits_a_gpu_is_in_bytes_of_the_gpu(tmp_path: Path) -> None:
    config = resolve(config_of(tmp_path, device="cuda", precision="bf16", effective_batch=64, seq_len=256))

    room = Room(32 * GB, "/job", 0, gpu_total_bytes=4 * GB)
    kept = {"device": "cuda", "precision": "bf16", "loss_chunk": 4096}
    found = MemoryNeeds(config, room, vocab_size=VOCAB, kept=kept)
    problem, size = found.plan(64).problem, found.largest(divisors(config.training))
    assert problem is not None
    assert size is not None
    assert f"training.micro_batch={size} ({format_bytes(found.at(size).gpu_bytes)})" in problem.what


def test_share_of_a_gpu_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "_gpu_by_driver", lambda moment: (80 * GB, 10 * GB))
    assert available.room(gpu=True).gpu_choice_bytes == 70 * GB
    monkeypatch.setenv(available.GPU_SHARE, str(30 * GB))
    found = available.room(gpu=True)
    assert (found.gpu_choice_bytes, found.gpu_free_bytes) == (30 * GB, 70 * GB)
    assert available.room().gpu_share_bytes is None


def test_micro_batch_and_loss_chunk_of_a_gpu_fill_it(tmp_path: Path) -> None:
    options = {"seq_len": 1024, "effective_batch": 512, "max_steps": 2}
    config = resolve(config_of(tmp_path, width=32, device="cuda", **options))

    def of_gpu(gigabytes: int | None, **kept: int) -> MemoryNeeds:
        room = Room() if gigabytes is None else dataclasses.replace(Room(), gpu_total_bytes=gigabytes * GB)
        return MemoryNeeds(config, room, vocab_size=50_257, kept=kept)

    assert of_gpu(80).micro_batch() == of_gpu(None).micro_batch() == 64
    assert of_gpu(1).micro_batch() < 64
    assert of_gpu(80).micro_batch(pinned=16) == 16
    assert [of_gpu(size).plan(64).loss_chunk for size in (None, 80, 16)] == [8192, 8192, 4096]
    assert of_gpu(80, loss_chunk=256).plan(64).loss_chunk == 256
    on_cpu = resolve(config_of(tmp_path, width=32, device="cpu", **options))
    assert MemoryNeeds(on_cpu, Room(), vocab_size=50_257).micro_batch() == 16


def test_auto_gets_smaller_in_memory_not_in_windows(tmp_path: Path) -> None:
    """Of 128 or 256 tokens the logits are whole and there three times; of 512 they are in chunks."""
    config = config_of(tmp_path, width=128, seq_len=128)
    asked = needs(config, 32 * GB)
    host = {size: asked.at(size).host_bytes for size in (1, 2, 4, 8)}
    assert host[4] < min(host[1], host[2])
    assert asked.micro_batch(pinned=8, after_oom=True) == 4
    assert asked.micro_batch(pinned=4, after_oom=True) == 4, "neither 2 nor 1 takes less"
    assert asked.micro_batch(pinned=2, after_oom=True) == 1
    assert needs(config, host[4] // 2).micro_batch() == 4, "where none fits, the one that takes least"
    assert needs(config, host[4] // 2).micro_batch(pinned=8) == 4


def test_death_for_memory_is_recognized(tmp_path: Path) -> None:
    run = {"attempts": [{"attempt": 1}, {"attempt": 2}]}
    assert not died_for_memory(tmp_path, {})
    assert not died_for_memory(tmp_path, run)
    counted = {"counters_before": {"oom_kill": 3}, "counters_after": {"oom_kill": 4}}
    outcome = {"attempt": 2, "signal": "SIGKILL", **counted, "parents": []}
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(outcome))
    assert died_for_memory(tmp_path, run)
    path.rename(tmp_path / "outcome.previous.json")
    assert died_for_memory(tmp_path, run), "moved aside by the supervisor of the attempt that runs"
    (tmp_path / "outcome.previous.json").unlink()
    path.write_text(json.dumps(outcome | {"attempt": 1}))
    assert not died_for_memory(tmp_path, run), "of an earlier attempt"
    path.write_text(json.dumps(outcome | {"counters_after": {"oom_kill": 3}}))
    assert not died_for_memory(tmp_path, run), "killed by somebody"
    above = [{"path": "/", "oom_kill_before": 0, "oom_kill_after": 1}]
    path.write_text(json.dumps(outcome | {"counters_after": {"oom_kill": 3}, "parents": above}))
    assert died_for_memory(tmp_path, run)
    path.write_text("[garbage")
    assert not died_for_memory(tmp_path, run)
    reason = "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"
    (tmp_path / "status.json").write_text(json.dumps({"state": "failed", "reason": reason}))
    assert died_for_memory(tmp_path, run)


@pytest.mark.slow
def test_killed_run_keeps_its_micro_batch(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, micro_batch="auto", max_steps=500, checkpoint_every=5))

    def killed_in_attempt(number: int) -> dict[str, Any]:
        """run.json of an attempt that took steps and was killed."""
        process = subprocess.Popen([sys.executable, str(ROOT / "core.py"), str(folder), "--quiet"])
        deadline = time.monotonic() + 120
        while True:
            status = read_status(folder)
            if (status.get("attempt"), status.get("stage")) == (number, "train"):
                break
            assert time.monotonic() < deadline
            assert process.poll() is None, "it has ended"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return read_run(folder)

    run = killed_in_attempt(1)
    assert run["auto"]["micro_batch"] == 4
    # As were it chosen where there was less memory.
    update_run(folder, auto={**run["auto"], "micro_batch": 2})
    run = killed_in_attempt(2)
    assert (run["auto"]["micro_batch"], run["accumulation"]) == (2, 2), "kept, and not grown"
    assert run["attempts"][-1]["how"]["micro_batch"] == 2

    counted = {"counters_before": {"oom_kill": 0}, "counters_after": {"oom_kill": 1}}
    (folder / "outcome.json").write_text(json.dumps({"attempt": 2, "signal": "SIGKILL", **counted}))
    run = killed_in_attempt(3)
    assert run["auto"]["micro_batch"] == 1
    assert killed_in_attempt(4)["auto"]["micro_batch"] == 1


@pytest.mark.parametrize("state", ["refused", "with a warning"])
def test_run_is_refused_or_warned(tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = Estimate.of([Part("all", 1 << 60)])
    monkeypatch.setattr("training.plan.memory_plan.estimate_run", lambda *args, **options: huge)
    config = tiny_config(tmp_path, max_steps=2, evals=1)
    if state == "with a warning":
        config = dataclasses.replace(config, memory=dataclasses.replace(config.memory, refuse=False))
    folder = make_run(config)
    done = run_here(folder)
    log = (folder / "log.txt").read_text()
    if state == "refused":
        assert done.returncode == 2
        reason = read_status(folder)["reason"]
        assert reason.startswith("training.micro_batch: ")
        assert reason.endswith("memory.refuse=false")
    else:
        assert done.returncode == 0
        assert "(memory.refuse=false)" in log
        assert " memory.refuse=false" not in log, "it was started"


def test_estimate_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from conf.schema import Config; from training.plan.run_plan import resolve\n"
        "from training.plan.memory_parts import estimate_run\n"
        "found = estimate_run(resolve(Config()), vocab_size=257, micro_batch=8)\n"
        "assert found.host_bytes > 0 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240)


def test_tokens_in_memory_and_page_tables(tmp_path: Path) -> None:
    def parts(**dataset: Any) -> dict[str, int]:
        config = config_of(tmp_path)
        config = resolve(dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, **dataset)))
        data = {"file_bytes": 2 * GB}
        estimate = estimate_run(config, vocab_size=VOCAB, micro_batch=8, data=data)
        return {part.name: part.host_bytes for part in estimate.parts}

    (tokens,) = set(parts(reader="memory")) - set(parts())
    assert parts(reader="memory")[tokens] == 2 * GB
    assert parts()["page tables"] == 4 * MB, "2 MB a GiB mapped"


def test_dominant_logits_take_a_second_block_on_a_gpu() -> None:
    """Bytes of the phase `loss`: the block is what other tensors of the step leave no room for."""
    logits = Part("logits and loss", 0, 400, when=("loss",))
    small, large = (Part("activations", 0, size, when=("loss",)) for size in (15, 1000))
    kept = Part("parameters", 0, 5000)
    assert _split_block([kept, logits, small], "loss") == 385
    assert _split_block([kept, logits, large], "loss") == 0
    assert _split_block([kept, logits, small], "evaluate") == 0
    assert _split_block([logits, Part("CUDA graphs", 0, 5000, when=("loss",))], "loss") == 400
