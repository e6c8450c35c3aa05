"""Who holds the memory: a real model to the byte, arrays once, files apart, and nothing that raises."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_utils.errors import UserError
from memory.__main__ import main
from memory.attribute import Attribution, allocators, attribute, brief, heap, largest, lines
from memory.attribute.arrays import array_holdings
from memory.attribute.heap import Heap, walk
from memory.attribute.holdings import Holding, place
from memory.attribute.maps import Maps, read_maps
from memory.attribute.names import names_of
from memory.attribute.tensors import tensor_holdings
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).parents[3]
MB = 1 << 20
PID = 4_000_000


class Net(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, width)
        self.head = torch.nn.Linear(width, 100, bias=False)
        self.head.weight = self.embedding.weight  # tied: one storage
        self.norm = torch.nn.BatchNorm1d(width)


@pytest.fixture
def small_heap() -> None:
    """What is there already is not walked over: in a process that has run other tests it takes seconds."""
    gc.freeze()


def heap_of(*modules: torch.nn.Module, **lists: list[Any]) -> Heap:
    """What `walk` finds, of these alone."""
    inner = [module for root in modules for module in root.modules()]
    return Heap(modules=inner, **lists)


def sums(holdings: list[Holding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for holding in holdings:
        found[holding.kind] = found.get(holding.kind, 0) + holding.bytes
    return found


def moment(names: dict[str, int], which: str, parameter: str) -> int:
    """Bytes of the optimizer's moment of a parameter."""
    (name,) = (name for name in names if name.startswith(f"AdamW.{which} ") and name.split()[-1] == parameter)
    return names[name]


@settings(max_examples=examples(25))
@given(width=st.integers(1, 300), is_trained=st.booleans())
def test_a_models_sums_are_exact_to_the_byte(width: int, is_trained: bool) -> None:
    net = Net(width)
    optimizer = torch.optim.AdamW(net.parameters())
    if is_trained:
        net.norm(net.head(net.embedding(torch.arange(8))) @ net.head.weight).sum().backward()
        optimizer.step()
    found = tensor_holdings(heap_of(net, optimizers=[optimizer]))
    parameters = sum(parameter.nbytes for parameter in net.parameters())  # a tied one once
    kinds = sums(found)
    assert kinds["parameters"] == parameters == 4 * (100 * width + 2 * width)
    assert kinds["buffers"] == sum(buffer.nbytes for buffer in net.buffers())
    if is_trained:
        assert kinds["gradients"] == parameters
        assert kinds["optimizer"] == 2 * parameters + 4 * 3  # two moments, and a step of each parameter
        names = {holding.name: holding.bytes for holding in found}
        assert names["Net.embedding.weight"] == 400 * width
        assert names["Net.embedding.weight.grad"] == 400 * width
        assert moment(names, "exp_avg", "Net.embedding.weight") == 400 * width
        assert moment(names, "exp_avg_sq", "Net.norm.bias") == 4 * width
    by_module: dict[str | None, int] = {}
    for holding in found:
        by_module[holding.module] = by_module.get(holding.module, 0) + holding.bytes
    assert sum(by_module.values()) == sum(kinds.values())


@pytest.mark.slow
def test_a_real_model_is_found_in_the_whole_process() -> None:
    class Only(Net):
        """No other test's model, which may still be alive, has this name."""

    net = Only(777)
    optimizer = torch.optim.AdamW(net.parameters())
    net.norm(net.embedding(torch.arange(8))).sum().backward()
    optimizer.step()
    found = attribute(when="now", count=10_000)
    names = {one["name"]: one["bytes"] for one in found.largest}
    size = 400 * 777
    assert names["Only.embedding.weight"] == names["Only.embedding.weight.grad"] == size
    assert moment(names, "exp_avg", "Only.embedding.weight") == size
    module = next(of for of in found.modules if of["module"] == "Only.embedding")
    assert module["parameters"] == module["gradients"] == size
    assert module["optimizer"] == 2 * size + 4
    assert found.anon_bytes > found.unexplained_bytes > 0
    explained = sum(of["resident_bytes"] for of in found.kinds if of["where"] == "anon")
    assert explained + found.unexplained_bytes == found.anon_bytes
    assert sum(of["bytes"] for of in found.likely) == pytest.approx(found.unexplained_bytes, rel=0.1)
    assert found.notes == []


def test_two_models_of_one_class_have_names_of_their_own() -> None:
    found = tensor_holdings(heap_of(Net(3), Net(4)))
    assert {holding.name.partition(".")[0] for holding in found} == {"Net", "Net#2"}


def test_views_of_tensors_are_their_storage() -> None:
    base = torch.zeros(1000)
    found = tensor_holdings(Heap(tensors=[base[3:], base.view(10, 100), base, torch.empty(0)]))
    assert [(holding.bytes, holding.kind) for holding in found] == [(4000, "tensors")]


def test_a_graph_that_is_kept_is_told_with_who_keeps_it() -> None:
    def work() -> list[Holding]:
        weight = torch.ones(300, 300, requires_grad=True)
        losses = [(torch.ones(500, 300) @ weight).exp().sum()]
        return tensor_holdings(Heap(tensors=[weight, losses[0]], locals={id(losses[0]): "`loss` of work"}))

    saved = [holding for holding in work() if holding.kind == "saved"]
    assert any("ExpBackward0" in holding.name and "`loss`" in holding.name for holding in saved)
    assert sum(holding.bytes for holding in saved) == 2 * 500 * 300 * 4


def test_looking_at_a_graph_computes_nothing_anew() -> None:
    from torch.utils.checkpoint import checkpoint

    calls = []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.exp().sin()

    x = torch.ones(50, requires_grad=True)
    loss = checkpoint(block, x, use_reentrant=False).sum()
    tensor_holdings(Heap(tensors=[x, loss]))
    assert len(calls) == 1
    loss.backward()
    assert len(calls) == 2
    tensor_holdings(Heap(tensors=[x, loss]))  # used up: its saved tensors are gone


def test_sparse_fake_and_meta_tensors() -> None:
    from torch._subclasses import FakeTensorMode

    sparse = torch.sparse_coo_tensor([[0, 1], [2, 3]], [1.0, 2.0], (10, 10)).coalesce()
    with FakeTensorMode():
        fake = torch.empty(10_000)
    tensors = [sparse, fake, torch.empty(9, device="meta"), sparse.to_sparse_csr()]
    found = tensor_holdings(Heap(tensors=tensors))
    assert all(holding.where == "anon" and holding.bytes < 200 for holding in found)
    assert len(found) >= 2


def test_arrays_count_once_and_not_beside_their_tensor() -> None:
    base = np.ones(5000)
    tensor = torch.ones(4000)
    arrays = [
        base[1:],
        base.reshape(50, 100),
        base,
        base[::2],
        tensor.numpy(),
        np.broadcast_to(3.0, (10**9,)),
    ]
    counted = tensor_holdings(Heap(tensors=[tensor, torch.from_numpy(base)]))
    assert sum(holding.bytes for holding in array_holdings(Heap(arrays=arrays), [])) == 40_000 + 16_000 + 8
    assert sum(holding.bytes for holding in array_holdings(Heap(arrays=arrays), counted)) == 8
    assert sum(holding.bytes for holding in counted) == 40_000 + 16_000


def test_a_memmap_is_not_anon_and_what_was_never_touched_takes_nothing(tmp_path: Path) -> None:
    np.full(MB, 1, np.uint8).tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", np.uint8, "r")
    assert mapped.sum() == MB
    untouched, half = np.zeros(64 * MB, np.uint8), np.zeros(64 * MB, np.uint8)
    half[: 32 * MB] = 1
    found = array_holdings(Heap(arrays=[mapped, mapped[5:], untouched, half]), [])
    place(found, read_maps(__import__("os").getpid(), amounts=False))
    by_size = sorted((holding.where, holding.bytes, holding.held_bytes // MB) for holding in found)
    assert by_size[-1] == ("file", MB, 1)
    least, most = (held for where, _, held in by_size if where == "anon")
    assert least <= 2  # huge pages may round up
    assert most in (32, 33, 34)


class Loader:
    def __init__(self) -> None:
        self.buffer = np.ones(300_000)
        self.parts = [bytearray(b"x" * 400_000) for _ in range(7)]
        self.by_name = {"a": np.ones(310_000)}


@pytest.mark.usefixtures("small_heap")
def test_names_and_groups() -> None:
    loader, variable = Loader(), np.ones(320_000)
    objects = [[number] for number in range(200_000)]
    found = attribute(count=10_000)
    names = {one["name"]: one["bytes"] for one in found.largest}
    assert names["Loader.buffer"] == 2_400_000
    assert names["Loader.by_name['a']"] == 2_480_000
    assert 7 * 400_000 < names["Loader.parts, 7 items"] < 7 * 410_000
    variables = [name for name in names if name.startswith("`variable`") and "test_names_and_groups" in name]
    assert [names[name] for name in variables] == [variable.nbytes]
    assert found.objects["python_bytes"] > 10 * MB
    assert found.notes == []
    del loader, objects


@pytest.mark.usefixtures("small_heap")
def test_what_the_garbage_collector_does_not_track_is_found() -> None:
    holder = [{"x": (np.ones(330_000), "plain")}]
    gc.collect()  # stops tracking the tuple and the dict
    found = walk(sizes=False)
    array = next(array for array in found.arrays if array.shape == (330_000,))
    assert names_of([array], found)[id(array)].endswith("['x'][0]")
    del holder


@pytest.mark.usefixtures("small_heap")
def test_largest_is_a_plain_list() -> None:
    loader = Loader()
    found = largest(5)
    assert 1 <= len(found) <= 5
    assert json.loads(json.dumps(found)) == found
    assert found == sorted(found, key=lambda one: -(one["resident_bytes"] or one["bytes"]))
    del loader


@pytest.mark.usefixtures("small_heap")
def test_nothing_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise RuntimeError

        def __getattr__(self, name: str) -> None:
            raise RuntimeError

        def __sizeof__(self) -> int:
            raise RuntimeError

    class Lying(np.ndarray):
        @property
        def nbytes(self) -> int:
            raise RuntimeError

    held = [Hostile(), np.ones(5).view(Lying)]
    assert attribute().notes == []
    monkeypatch.setattr("memory.attribute.attribution.walk", lambda **_: 1 / 0)
    found = attribute()
    assert "ZeroDivisionError" in found.notes[0]
    assert found.anon_bytes > 0
    assert largest()[0]["kind"] == "error"
    assert lines(found)
    assert brief(found).startswith("[mem] ")
    del held


SMAPS = """\
00400000-00500000 r-xp 00000000 08:01 11 /usr/lib/a b.so
Size:               1024 kB
Rss:                1000 kB
Private_Dirty:        12 kB
Anonymous:             8 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
01000000-01200000 rw-p 00000000 00:00 0 [heap]
Rss:                2048 kB
Anonymous:          2044 kB
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Rss:                 100 kB
Anonymous:           100 kB
7f0000100000-7f0004000000 ---p 00000000 00:00 0
Rss:                   0 kB
7f1000001000-7f1000002000 ---p 00000000 00:00 0
7f1000002000-7f1000802000 rw-p 00000000 00:00 0
Rss:                  40 kB
Anonymous:            40 kB
7f2000001000-7f2000002000 rw-s 00000000 00:01 5 /dev/shm/torch_1 (deleted)
Rss:                   4 kB
7f2000003000-7f2000004000 rw-p 00000000 00:00 0 [anon:glibc: malloc]
Rss:                   4 kB
Anonymous:             4 kB
Swap:                garbage
nonsense
7fff00000000-7fff00010000 rw-p 00000000 00:00 0 [stack]
Rss:                  16 kB
Anonymous:            16 kB
7fff00020000-7fff00021000 r-xp 00000000 00:00 0 [vdso]
"""


def test_maps_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / str(PID)).mkdir()
    (tmp_path / str(PID) / "smaps").write_text(SMAPS)
    maps = read_maps(PID, proc=str(tmp_path))
    kinds = {f"{mapping.begin:x}": mapping.kind for mapping in maps.mappings}
    assert kinds == {
        "400000": "file", "1000000": "heap", "7f0000000000": "arena", "7f0000100000": "anonymous",
        "7f1000001000": "anonymous", "7f1000002000": "stack", "7f2000001000": "shared",
        "7f2000003000": "anonymous", "7fff00000000": "stack", "7fff00020000": "kernel",
    }  # fmt: skip
    by_kind = maps.by_kind()
    assert by_kind["file"] == {
        "mappings": 1, "rss_bytes": 1_024_000, "anon_bytes": 8192, "private_dirty_bytes": 12288,
        "swap_bytes": 0,
    }  # fmt: skip
    assert by_kind["stack"]["anon_bytes"] == 56 << 10
    assert maps.files(1) == [
        {
            "path": "/usr/lib/a b.so",
            "rss_bytes": 1_024_000,
            "anon_bytes": 8192,
            "mapped_bytes": MB,
        }
    ]
    assert maps.at(0x400000).path.endswith("/a b.so")
    assert maps.at(0x3FFFFF) is None
    assert maps.at(0x500000) is None


def test_without_proc() -> None:
    maps = read_maps(PID, proc="/nowhere")
    assert (maps.mappings, maps.has_amounts) == ([], False)
    assert maps.at(5) is None
    holding = Holding("arrays", "", "", 10, 1 << 40)
    place([holding], Maps())
    assert holding.where == "anon"


def test_malloc_tells_what_it_keeps() -> None:
    found = allocators.read_malloc()
    if found is None:
        pytest.skip("no mallinfo2 in this C library")
    assert found["in_use_bytes"] > MB
    assert found["free_bytes"] >= 0


def test_allocation_sites_only_where_they_are_traced() -> None:
    assert allocators.allocation_sites() is None
    tracemalloc.start()
    try:
        held = [bytes(100_000) for _ in range(20)]
        found = allocators.allocation_sites(1)
    finally:
        tracemalloc.stop()
    assert found[0]["bytes"] >= 2_000_000
    assert found[0]["site"].startswith(str(Path(__file__)))
    del held


class FakeCuda:
    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.calls = fails, []
        self.memory = types.SimpleNamespace(_record_memory_history=self.record, _dump_snapshot=self.dump)

    def is_initialized(self) -> bool:
        return True

    def record(self, **options: object) -> None:
        self.calls.append(("record", options))
        if self.fails:
            raise RuntimeError

    def dump(self, path: str) -> None:
        self.calls.append(("dump", path))
        if self.fails:
            raise RuntimeError

    def memory_stats(self) -> dict[str, int]:
        if self.fails:
            raise RuntimeError
        return {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 9}


def test_cuda_is_asked_only_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not allocators.save_cuda_snapshot(path)
    assert not allocators.record_cuda_history()
    assert allocators.cuda_sums() is None
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert allocators.record_cuda_history()
    assert allocators.save_cuda_snapshot(path)
    assert allocators.cuda_sums()["reserved_bytes"] == 9
    assert cuda.calls[1] == ("dump", str(path))
    allocators.end_cuda_history()
    assert cuda.calls[2] == ("record", {"enabled": None})
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=FakeCuda(fails=True)))
    assert not allocators.record_cuda_history()
    assert not allocators.save_cuda_snapshot(path)
    assert allocators.cuda_sums() is None


def test_neither_torch_nor_numpy_is_loaded_by_looking() -> None:
    code = (
        "import sys\nfrom memory.attribute import attribute, largest, lines\n"
        "held = bytearray(b'x' * 3_000_000)\n"
        "print('\\n'.join(lines(attribute(when='now'))), largest(1)[0]['name'])\n"
        "assert not {'torch', 'numpy', 'psutil', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "3,000,000" in done.stdout
    assert done.stdout.endswith("__main__.held\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    def one(when: str, anon_bytes: int) -> dict[str, Any]:
        return Attribution(
            1.0, 7, {"when": when, "step": 3}, anon_bytes, 2 * MB, 0, unexplained_bytes=anon_bytes - 9 * MB,
            kinds=[
                {"kind": "parameters", "where": "anon", "count": 2, "bytes": 9 * MB, "resident_bytes": 9 * MB}
            ],
            likely=[{"owner": "stacks of threads", "bytes": MB, "is_exact": True}],
            largest=[Holding("parameters", "Net.w", "float32 (3,)", 9 * MB).to_json()],
        ).to_json()  # fmt: skip

    record = {"version": 1, "attributions": [one("first_step", 20 * MB), one("peak", 30 * MB) | {"new": 1}]}
    (tmp_path / "memory.attribution.json").write_text(json.dumps(record))
    return tmp_path


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["attribute", str(run)]) == 0
    golden.text(capsys.readouterr().out)
    assert main(["attribute", str(run), "--when", "first_step", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["anon_bytes"] == 20 * MB


def test_the_command_says_what_is_missing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["attribute", str(run), "--when", "finish"]) == 2
    golden.text(capsys.readouterr().err, "no such moment")
    strange = [
        {"kinds": [{"kind": "arrays", "where": "anon", "count": 1, "bytes": "x", "resident_bytes": 1}]},
        {"kinds": 3, "anon_bytes": "many", "facts": []},
        {"largest": [{"bytes": None, "resident_bytes": None, "name": "x", "what": "", "where": "anon"}]},
        {"unexplained_bytes": 10, "likely": [{}]},
    ]
    written = [json.dumps({"attributions": [one]}) for one in strange]
    for text in ("{", "[]", '{"attributions": [3]}', '{"attributions": []}', *written):
        (run / "memory.attribution.json").write_text(text)
        assert main(["attribute", str(run)]) == 2
        golden.text(capsys.readouterr().err, "damaged")
    (run / "memory.attribution.json").unlink()
    assert main(["attribute", str(run)]) == 2
    golden.text(capsys.readouterr().err, "missing")


def test_memray_is_named_where_it_is_missing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(UserError) as caught:
        allocators.memray_sites(run / "memray.bin")
    assert caught.value.codes == ["package-missing"]


@pytest.mark.usefixtures("small_heap")
def test_a_walk_without_torch_and_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [torch.ones(3), np.ones(3)]
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delitem(sys.modules, "numpy")
    found = heap.walk(sizes=False)
    assert (found.tensors, found.arrays) == ([], [])
    del held
