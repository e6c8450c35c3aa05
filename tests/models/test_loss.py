from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from models import lm_loss, loss, loss_implementation, resolve_loss_chunk
from tests.searched import examples

TOKENS, VOCAB, WIDTH = 50, 300, 24
ways = pytest.mark.parametrize("has_torchs", [True, False], ids=["torch", "ours"])


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose what is behind the face, where a test is parametrized over `ways`."""
    callspec = getattr(request.node, "callspec", None)
    if callspec and "has_torchs" in callspec.params:
        monkeypatch.setattr(loss, "TORCH_HAS_IT", callspec.params["has_torchs"])


def make(tokens: int = TOKENS, vocab: int = VOCAB, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(vocab, WIDTH, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(vocab, (tokens,), generator=generator)
    labels[::7] = -100
    return [hidden, weight, labels]


def reference(hidden: Tensor, weight: Tensor, labels: Tensor, reduction: str = "mean") -> list[Tensor]:
    """Loss and gradients of ordinary cross-entropy in fp64."""
    hidden, weight = (tensor.detach().double().requires_grad_() for tensor in (hidden, weight))
    value = F.cross_entropy(hidden @ weight.T, labels, reduction=reduction)
    return [value.detach(), *torch.autograd.grad(value, (hidden, weight))]


def ours(hidden: Tensor, weight: Tensor, labels: Tensor, chunk: int, reduction: str = "mean") -> list[Tensor]:
    value = lm_loss(hidden, weight, labels, chunk=chunk, reduction=reduction)
    assert value.dtype == torch.float32
    assert value.shape == ()
    return [value.detach(), *torch.autograd.grad(value, (hidden, weight))]


@ways
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 7, 16, 49, 50, 1000])
def test_loss_and_gradients_are_those_of_ordinary_cross_entropy(
    has_torchs: bool, chunk: int, reduction: str
) -> None:
    for got, expected in zip(
        ours(*make(), chunk, reduction), reference(*make(), reduction=reduction), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6, check_dtype=False)


@given(
    st.integers(1, 40), st.integers(2, 90), st.integers(1, 45), st.floats(0.01, 60), st.sampled_from([0, 1])
)
@settings(max_examples=examples(60))
def test_both_ways_agree_on_any_size_and_scale(
    tokens: int, vocab: int, chunk: int, scale: float, way: int
) -> None:
    hidden, weight, labels = make(tokens, vocab)
    labels[0] = 0
    with torch.no_grad():
        hidden.mul_(scale)
    expected = reference(hidden, weight, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "TORCH_HAS_IT", bool(way))
        found = ours(hidden, weight, labels, chunk)
    for got, want in zip(found, expected, strict=True):
        assert got.isfinite().all()
        limit = 1e-5 * (1 + want.abs().max()) * (1 + scale)
        assert (got - want).abs().max() <= limit


@ways
def test_labels_ignored_count_for_nothing(has_torchs: bool) -> None:
    hidden, weight, labels = make()
    kept = labels != -100
    full = ours(hidden, weight, labels, 8)
    without = lm_loss(hidden[kept], weight, labels[kept], chunk=8)
    torch.testing.assert_close(full[0], without, rtol=1e-6, atol=0)
    assert (full[1][~kept] == 0).all()
    nothing = torch.full_like(labels, -100)
    assert lm_loss(hidden, weight, nothing, chunk=8).isnan()
    assert lm_loss(hidden, weight, nothing, chunk=8, reduction="sum") == 0


@ways
def test_a_batch_of_sequences_is_a_list_of_tokens(has_torchs: bool) -> None:
    hidden, weight, labels = make()
    shaped = lm_loss(hidden.view(5, 10, WIDTH), weight, labels.view(5, 10), chunk=16)
    assert torch.equal(shaped, lm_loss(hidden, weight, labels, chunk=16))


@ways
def test_the_gradient_is_scaled_by_what_comes_after_the_loss(has_torchs: bool) -> None:
    hidden, weight, labels = make()
    (lm_loss(hidden, weight, labels, chunk=16) / 4).backward()
    for got, expected in zip((hidden.grad, weight.grad), ours(*make(), 16)[1:], strict=True):
        torch.testing.assert_close(got, expected / 4)


@ways
def test_a_second_backward_pass_is_refused_rather_than_wrong(has_torchs: bool) -> None:
    value = lm_loss(*make(), chunk=16)
    (value / 2).backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        (value / 2).backward()


@pytest.mark.parametrize("chunk", [16, 1000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_inputs_give_an_fp32_loss(dtype: torch.dtype, chunk: int) -> None:
    value, *gradients = ours(*make(dtype=dtype), chunk)
    expected, *gradients_expected = reference(*make(dtype=dtype))
    # 8.875 for 8.8794 is what a loss in bf16 looks like; products rounded to 16 bits are no such steps.
    assert abs(value.item() - expected.item()) < 2e-3
    assert value.item() != value.to(dtype).item()
    for got, want in zip(gradients, gradients_expected, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=0.05, atol=0.02 * want.abs().max().item())


@pytest.mark.parametrize("chunk", [16, 1000])
def test_under_autocast_products_are_in_bf16_and_the_loss_in_fp32(chunk: int) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, *gradients = ours(*make(), chunk)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, weight, labels = make()
        usual = F.cross_entropy(F.linear(hidden, weight).float(), labels)
    usual_gradients = torch.autograd.grad(usual, (hidden, weight))
    torch.testing.assert_close(value, usual, rtol=1e-6, atol=1e-6)
    assert value != lm_loss(*make(), chunk=chunk)
    for got, expected in zip(gradients, usual_gradients, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02 * expected.abs().max().item())


@pytest.mark.parametrize("frozen", [0, 1])
def test_only_the_gradients_asked_for_are_computed(frozen: int) -> None:
    inputs = make(dtype=torch.bfloat16)
    inputs[frozen].requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        lm_loss(*inputs, chunk=16).backward()
    product = 2 * TOKENS * VOCAB * WIDTH
    assert counter.get_total_flops() == 2 * product
    assert inputs[frozen].grad is None
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        assert not lm_loss(*inputs, chunk=16).requires_grad
    assert counter.get_total_flops() == product


def test_evaluation_is_the_same_loss_without_gradients() -> None:
    trained = ours(*make(), 16)[0]
    with torch.no_grad():
        torch.testing.assert_close(lm_loss(*make(), chunk=16), trained, rtol=1e-6, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_fallback_of_torch_to_whole_logits_is_an_error() -> None:
    hidden, weight, labels = (tensor.detach() for tensor in make())
    with pytest.raises(UserWarning, match=r"options.* ignored"):
        torch.jit.trace(lambda states: lm_loss(states, weight, labels, chunk=16), hidden)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"reduction": "none"}, ValueError, "'none', expected one of mean, sum"),
        ({"chunk": 0}, ValueError, "expected a positive number of tokens"),
        ({"labels": torch.zeros(TOKENS, dtype=torch.int32)}, TypeError, "int32"),
        ({"labels": torch.zeros(TOKENS - 1, dtype=torch.int64)}, TypeError, r"expected int64 \(50,\)"),
        ({"hidden": torch.zeros(TOKENS, WIDTH, dtype=torch.bfloat16)}, TypeError, "outside of autocast"),
        (
            {
                "hidden": torch.zeros(TOKENS, WIDTH, dtype=torch.float64),
                "weight": torch.zeros(VOCAB, WIDTH, dtype=torch.float64),
            },
            TypeError,
            "float64",
        ),
    ],
)
def test_arguments_that_no_way_serves_are_refused(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    hidden, weight, labels = make()
    arguments = {"hidden": hidden, "weight": weight, "labels": labels, "chunk": 16} | change
    with pytest.raises(error, match=message):
        lm_loss(**arguments)  # type: ignore[arg-type]


def test_auto_chunk_holds_no_more_than_a_chunk_of_a_50k_vocabulary() -> None:
    assert resolve_loss_chunk("auto", 50_257) == 256
    assert resolve_loss_chunk("auto", 257) == 16_384
    assert resolve_loss_chunk("auto", 128_256) == 256
    assert resolve_loss_chunk("auto", 10**9) == 256
    assert resolve_loss_chunk(100, 257) == 100
    for vocab_size in (2, 100, 1_000, 8_192, 16_000, 32_000):
        chunk = resolve_loss_chunk("auto", vocab_size)
        assert chunk >= 256
        assert chunk == 256 or chunk * vocab_size * 4 * 3 <= 256 * 50_257 * 4


def test_the_record_of_a_run_names_what_computes_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loss_implementation() == "torch.nn.functional.linear_cross_entropy"
    assert loss_implementation("cpu", "bf16") == loss_implementation("cuda") == "models.chunked_loss"
    monkeypatch.setattr(loss, "TORCH_HAS_IT", False)
    assert loss_implementation() == "models.chunked_loss"


LIMITED = """
import hashlib, json, resource, sys
import torch
from torch.nn.functional import cross_entropy, linear
from models import lm_loss, loss

torch.set_num_threads(2)
torch.manual_seed(0)
hidden = torch.randn(TOKENS, 16, requires_grad=True)
weight = torch.randn(50257, 16, requires_grad=True)
labels = torch.randint(50257, (TOKENS,))
lm_loss(hidden[:300], weight, labels[:300], 256).backward()


def digest(hidden, weight, labels):
    value = lm_loss(hidden, weight, labels, 256)
    parts = [value.detach(), *torch.autograd.grad(value, (hidden, weight))]
    return hashlib.sha256(b"".join(part.float().numpy().tobytes() for part in parts)).hexdigest()


in_use = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:"))
limit = in_use * 1024 + LIMIT_MB * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
found = {"torch": [digest(hidden, weight, labels) for _ in range(TIMES)]}
loss.TORCH_HAS_IT = False
found["ours"] = [digest(hidden, weight, labels) for _ in range(TIMES)]
half = [tensor.detach().bfloat16().requires_grad_() for tensor in (hidden, weight)]
found["bf16"] = [digest(*half, labels) for _ in range(TIMES)]
try:
    cross_entropy(linear(hidden, weight), labels).backward()
    found["whole"] = "fits"
except RuntimeError as error:
    found["whole"] = str(error)
print(json.dumps(found))
""".replace("TOKENS", "1024")


def run_limited(root: Path, *, times: int, limit_mb: int) -> dict[str, list[str]]:
    """Loss and gradients of each way, hashed, so many times; for whole logits the error.

    limit_mb: more than it has before. Whole logits of 1,024 tokens are 206 MB, a chunk 51.
    """
    code = LIMITED.replace("TIMES", str(times)).replace("LIMIT_MB", str(limit_mb))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_whole_logits_never_exist(root: Path) -> None:
    found = run_limited(root, times=1, limit_mb=192)
    assert "can't allocate memory" in found.pop("whole")
    assert set(found) == {"torch", "ours", "bf16"}


@pytest.mark.slow
def test_every_bit_is_the_same_run_to_run_on_two_threads(root: Path) -> None:
    first, second = (run_limited(root, times=2, limit_mb=600) for _ in range(2))
    for way in ("torch", "ours", "bf16"):
        assert len({*first[way], *second[way]}) == 1, way
    assert len({first[way][0] for way in ("torch", "ours", "bf16")}) == 3


@ways
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_losses_of_tokens_beside_the_same_loss_and_gradients(
    has_torchs: bool, chunk: int, reduction: str
) -> None:
    hidden, weight, labels = make()
    of_tokens = torch.full((5, 10), torch.nan)
    shaped = hidden.view(5, 10, WIDTH), weight, labels.view(5, 10)
    value = lm_loss(*shaped, chunk=chunk, reduction=reduction, of_tokens=of_tokens)
    got = [value.detach(), *torch.autograd.grad(value, (hidden, weight))]
    for one, expected in zip(got, reference(*make(), reduction=reduction), strict=True):
        torch.testing.assert_close(one.double(), expected, rtol=1e-5, atol=1e-6)
    each = F.cross_entropy(hidden @ weight.T, labels, reduction="none")
    torch.testing.assert_close(of_tokens.flatten(), each.detach())
