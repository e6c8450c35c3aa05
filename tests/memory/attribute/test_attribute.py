"""Who holds the memory: a model to the byte, arrays once, mapped files apart, and nothing that raises."""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.__main__ import main
from memory.attribute import Attribution, allocators, attribute, brief, largest, lines
from memory.attribute.heap import Heap
from memory.attribute.holdings import Holding, array_holdings, place
from memory.attribute.maps import Maps
from memory.attribute.tensors import tensor_holdings
from memory.commands import attribute as attribute_command
from tests.golden_text import Golden
from tests.searched import examples

ROOT = Path(__file__).parents[3]
MB = 1 << 20


class Net(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, width)
        self.head = torch.nn.Linear(width, 100, bias=False)
        self.head.weight = self.embedding.weight  # tied: one storage
        self.norm = torch.nn.BatchNorm1d(width)


@pytest.fixture
def small_heap() -> None:
    """Leave out objects of other tests, over which a walk takes seconds."""
    gc.freeze()


def heap_of(*modules: torch.nn.Module, **lists: list[Any]) -> Heap:
    """Heap of these modules alone."""
    inner = [module for root in modules for module in root.modules()]
    return Heap(modules=inner, **lists)


def sums(holdings: list[Holding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for holding in holdings:
        found[holding.kind] = found.get(holding.kind, 0) + holding.bytes
    return found


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
        assert names["AdamW.exp_avg of Net.embedding.weight"] == 400 * width
        assert names["AdamW.exp_avg_sq of Net.norm.bias"] == 4 * width
    assert all(holding.module for holding in found)


def test_models_of_one_class_and_views() -> None:
    found = tensor_holdings(heap_of(Net(3), Net(4)))
    assert {holding.name.partition(".")[0] for holding in found} == {"Net", "Net#2"}
    base = torch.zeros(1000)
    (holding,) = tensor_holdings(Heap(tensors=[base[3:], base.view(10, 100), base, torch.empty(0)]))
    assert (holding.bytes, holding.kind) == (4000, "tensors")


def test_saved_tensors_are_named_by_the_variable_that_keeps_their_graph() -> None:
    def work() -> list[Holding]:
        weight = torch.ones(300, 300, requires_grad=True)
        losses = [(torch.ones(500, 300) @ weight).exp().sum()]
        return tensor_holdings(Heap(tensors=[weight, losses[0]], variables={id(losses[0]): "`loss`"}))

    saved = [holding for holding in work() if holding.kind == "saved"]
    assert any("ExpBackward0" in holding.name and "`loss`" in holding.name for holding in saved)
    assert sum(holding.bytes for holding in saved) == 2 * 500 * 300 * 4


def test_looking_at_a_graph_recomputes_nothing() -> None:
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


def test_sparse_fake_and_meta_tensors_hold_nothing() -> None:
    from torch._subclasses import FakeTensorMode

    sparse = torch.sparse_coo_tensor([[0, 1], [2, 3]], [1.0, 2.0], (10, 10))
    with FakeTensorMode():
        fake = torch.empty(10_000)
    assert tensor_holdings(Heap(tensors=[sparse, fake, torch.empty(9, device="meta")])) == []


def test_arrays_count_once_and_not_next_to_their_tensor() -> None:
    base = np.ones(5000)
    tensor = torch.ones(4000)
    arrays = [base[1:], base.reshape(50, 100), base, tensor.numpy(), np.broadcast_to(3.0, (10**9,))]
    counted = tensor_holdings(Heap(tensors=[tensor, torch.from_numpy(base)]))
    assert sum(holding.bytes for holding in array_holdings(Heap(arrays=arrays), [])) == 40_000 + 16_000 + 8
    assert sum(holding.bytes for holding in array_holdings(Heap(arrays=arrays), counted)) == 8
    assert sum(holding.bytes for holding in counted) == 40_000 + 16_000


def test_a_memmap_is_not_anon_and_untouched_pages_take_nothing(tmp_path: Path) -> None:
    np.full(MB, 1, np.uint8).tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", np.uint8, "r")
    assert mapped.sum() == MB
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # np.zeros can get pages that were touched before
    untouched, half = (np.frombuffer(mmap.mmap(-1, 64 * MB, private), np.uint8) for _ in range(2))
    half[: 32 * MB] = 1
    found = array_holdings(Heap(arrays=[mapped, mapped[5:], untouched, half]), [])
    place(found, Maps())
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
    cache = {number: np.ones(40_000) for number in range(50)}  # untracked by the garbage collector
    nested = [{"x": (np.ones(330_000), "plain")}]
    gc.collect()  # stops tracking the tuple and the dict
    found = attribute(count=10_000)
    names = {one["name"]: one["bytes"] for one in found.largest}
    assert names["Loader.buffer"] == 2_400_000
    assert names["Loader.by_name['a']"] == 2_480_000
    assert 7 * 400_000 < names["Loader.parts"] < 7 * 410_000
    variables = {name.partition(" of test_names")[0]: size for name, size in names.items() if name[0] == "`"}
    assert variables["`variable`"] == variable.nbytes
    assert variables["`cache`"] == 50 * 40_000 * 8
    assert 330_000 * 8 in names.values()
    assert found.notes == []
    explained = sum(of["resident_bytes"] for of in found.kinds if of["where"] == "anon")
    assert explained + found.unexplained_bytes == found.anon_bytes
    del loader, cache, nested


@pytest.mark.usefixtures("small_heap")
def test_looking_keeps_nothing_alive() -> None:
    attribute()
    assert [one for one in gc.get_objects() if type(one) in (Heap, Holding)] == []


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

    held = [Hostile(), np.ones(5).view(Lying), torch.ones(3)]
    assert attribute().notes == []
    monkeypatch.setattr("memory.attribute.attribution.walk", lambda **_: 1 / 0)
    found = attribute()
    assert "ZeroDivisionError" in found.notes[0]
    assert found.anon_bytes > 0
    assert largest()[0]["kind"] == "error"
    assert lines(found)
    assert brief(found).startswith("[mem] ")
    del held


MAPS = b"""\
00400000-00500000 r-xp 00000000 08:01 11 /usr/lib/a b.so
01000000-01200000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f2000001000-7f2000002000 rw-s 00000000 00:01 5 /dev/shm/torch_1 (deleted)
7f2000003000-7f2000004000 rw-s 00000000 00:00 0
nonsense
7fff00020000-7fff00021000 r-xp 00000000 00:00 0 [vdso]
"""


@pytest.mark.parametrize(
    ("address", "where"),
    [
        (0x400000, "file"), (0x3FFFFF, "anon"), (0x500000, "anon"), (0x1000000, "anon"),
        (0x7F0000000000, "anon"), (0x7F2000001FFF, "shared"), (0x7F2000003000, "shared"),
        (0x7FFF00020000, "anon"), (1 << 63, "anon"),
    ],
)  # fmt: skip
def test_kind_of_memory_by_address(address: int, where: str) -> None:
    assert Maps(MAPS).where(address) == where
    assert Maps(b"").where(address) == "anon"


@pytest.mark.parametrize("state", ["absent", "idle", "fails", "works"])
def test_cuda_is_asked_only_while_it_runs(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    calls: list[object] = []

    def call(*arguments: object, **options: object) -> None:
        if state == "fails":
            raise RuntimeError
        calls.append((*arguments, *options.items()))

    memory = types.SimpleNamespace(_record_memory_history=call, _dump_snapshot=call)
    cuda = types.SimpleNamespace(memory=memory, is_initialized=lambda: state != "idle")
    torch = None if state == "absent" else types.SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    is_recorded = allocators.record_cuda_history()
    is_saved = allocators.save_cuda_snapshot(Path("snapshot.pickle"))
    allocators.end_cuda_history()
    assert is_recorded == is_saved == (state == "works")
    works = [(("max_entries", 100_000),), ("snapshot.pickle",), (("enabled", None),)]
    assert calls == (works if state == "works" else [])


def test_looking_imports_neither_torch_nor_numpy() -> None:
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


def test_lines_fit_terminal(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["attribute", str(run)]) == 0
    lines = capsys.readouterr().out.partition("\nnext:")[0].splitlines()
    assert max(map(len, lines)) <= 80


STRANGE = [
    {"kinds": [{"kind": "arrays", "where": "anon", "count": 1, "bytes": "x", "resident_bytes": 1}]},
    {"kinds": 3, "anon_bytes": "many", "facts": []},
    {"largest": [{"bytes": None, "resident_bytes": None, "name": "x", "what": "", "where": "anon"}]},
]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"attributions": [3]}', '{"attributions": []}']
    + [json.dumps({"attributions": [one]}) for one in STRANGE],
)
def test_a_damaged_file_is_refused(run: Path, text: str, golden: Golden) -> None:
    (run / "memory.attribution.json").write_text(text)
    with golden.refused("damaged-attribution"):
        command(run)


def test_a_missing_moment_or_file_is_refused(run: Path, golden: Golden) -> None:
    with golden.refused("no-such-moment") as error:
        command(run, "--when", "finish")
    golden.text(str(error.value), "moment")
    (run / "memory.attribution.json").unlink()
    with golden.refused("no-attribution") as error:
        command(run)
    golden.text(str(error.value), "missing")


def command(run: Path, *options: str) -> None:
    parser = argparse.ArgumentParser()
    attribute_command.add_parser(parser.add_subparsers())
    attribute_command.run(parser.parse_args(["attribute", str(run), *options]))
