from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from models import lm_loss, resolve_loss_chunk
from models.loss import chunked_loss
from models.loss.loss_chunk import padded_vocab
from tests.searched import examples

TOKENS, VOCAB, WIDTH = 50, 300, 24
in_tiles = pytest.mark.usefixtures("tiles_of_the_loss")


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


@in_tiles
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 7, 16, 49, 50, 1000])
def test_loss_and_gradients_are_those_of_ordinary_cross_entropy(chunk: int, reduction: str) -> None:
    for got, expected in zip(
        ours(*make(), chunk, reduction), reference(*make(), reduction=reduction), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6, check_dtype=False)


@in_tiles
@given(st.integers(1, 40), st.integers(2, 90), st.integers(1, 45), st.floats(0.01, 300))
@settings(max_examples=examples(60))
def test_it_is_ordinary_cross_entropy_at_any_size_and_scale(
    tokens: int, vocab: int, chunk: int, scale: float
) -> None:
    hidden, weight, labels = make(tokens, vocab)
    labels[0] = 0
    with torch.no_grad():
        hidden.mul_(scale)
    expected = reference(hidden, weight, labels)
    found = ours(hidden, weight, labels, chunk)
    for got, want in zip(found, expected, strict=True):
        assert got.isfinite().all()
        limit = 1e-5 * (1 + want.abs().max()) * (1 + scale)
        assert (got - want).abs().max() <= limit


@in_tiles
def test_labels_ignored_count_for_nothing() -> None:
    hidden, weight, labels = make()
    kept = labels != -100
    full = ours(hidden, weight, labels, 8)
    without = lm_loss(hidden[kept], weight, labels[kept], chunk=8)
    torch.testing.assert_close(full[0], without, rtol=1e-6, atol=0)
    assert (full[1][~kept] == 0).all()
    nothing = torch.full_like(labels, -100)
    assert lm_loss(hidden, weight, nothing, chunk=8).isnan()
    assert lm_loss(hidden, weight, nothing, chunk=8, reduction="sum") == 0


def test_a_batch_of_sequences_is_a_list_of_tokens() -> None:
    hidden, weight, labels = make()
    shaped = lm_loss(hidden.view(5, 10, WIDTH), weight, labels.view(5, 10), chunk=16)
    assert torch.equal(shaped, lm_loss(hidden, weight, labels, chunk=16))


def test_the_gradient_is_scaled_by_what_comes_after_the_loss() -> None:
    hidden, weight, labels = make()
    (lm_loss(hidden, weight, labels, chunk=16) / 4).backward()
    for got, expected in zip((hidden.grad, weight.grad), ours(*make(), 16)[1:], strict=True):
        torch.testing.assert_close(got, expected / 4)


def test_a_second_backward_pass_is_refused_rather_than_wrong() -> None:
    value = lm_loss(*make(), chunk=16)
    (value / 2).backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        (value / 2).backward()


@in_tiles
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


@in_tiles
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


@in_tiles
@pytest.mark.parametrize("frozen", [0, 1])
def test_only_the_gradients_asked_for_are_computed(frozen: int) -> None:
    inputs = make(dtype=torch.bfloat16)
    inputs[frozen].requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        lm_loss(*inputs, chunk=16).backward()
    product = 2 * TOKENS * (VOCAB if inputs[0].is_cpu else padded_vocab(VOCAB)) * WIDTH
    assert counter.get_total_flops() == 2 * product
    assert inputs[frozen].grad is None
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        assert not lm_loss(*inputs, chunk=16).requires_grad
    assert counter.get_total_flops() == product


def test_evaluation_is_the_same_loss_without_gradients() -> None:
    trained = ours(*make(), 16)[0]
    with torch.no_grad():
        torch.testing.assert_close(lm_loss(*make(), chunk=16), trained, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"reduction": "none"}, ValueError, "none"),
        ({"chunk": 0}, ValueError, "0"),
        ({"labels": torch.zeros(TOKENS, dtype=torch.int32)}, TypeError, "int32"),
        ({"labels": torch.zeros(TOKENS - 1, dtype=torch.int64)}, TypeError, r"int64 \(50,\)"),
        ({"hidden": torch.zeros(TOKENS, WIDTH, dtype=torch.bfloat16)}, TypeError, "autocast"),
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
    change: dict[str, object], error: type[Exception], named: str
) -> None:
    hidden, weight, labels = make()
    arguments = {"hidden": hidden, "weight": weight, "labels": labels, "chunk": 16} | change
    with pytest.raises(error) as raised:
        lm_loss(**arguments)  # type: ignore[arg-type]
    assert re.search(named, str(raised.value))


@in_tiles
@pytest.mark.parametrize("options", [{}, {"softcap": 300.0}, {"z_loss": 0.01}], ids=["", "cap", "z"])
def test_a_target_of_no_probability_has_the_loss_of_its_logits(options: dict[str, Any]) -> None:
    """Losses whose probability is 0 in fp32, beside ordinary ones."""
    hidden, weight, labels = make()
    with torch.no_grad():
        hidden[3::9] *= 40
    logits = hidden.double() @ weight.double().T
    if "softcap" in options:
        logits = 300 * torch.tanh(logits / 300)
    losses = F.cross_entropy(logits, labels, reduction="none")
    assert losses.max() > 110
    assert losses.min() < 10
    penalty = options.get("z_loss", 0.0) * logits.logsumexp(1).square()
    expected = torch.autograd.grad((losses + penalty)[labels != -100].mean(), (hidden, weight))
    of_tokens = torch.empty(TOKENS)
    value = lm_loss(hidden, weight, labels, 16, of_tokens=of_tokens, **options)
    torch.testing.assert_close(of_tokens.double(), losses.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(value.double(), losses[labels != -100].mean(), rtol=1e-5, atol=0)
    for got, want in zip(torch.autograd.grad(value, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * (1 + want.abs().max().item()))


def test_auto_chunk_holds_no_more_than_a_chunk_of_a_50k_vocabulary() -> None:
    assert resolve_loss_chunk("auto", 50_257, "cpu") == 256
    assert resolve_loss_chunk("auto", 257, "cpu") == 16_384
    assert resolve_loss_chunk("auto", 10**9, "cpu") == 256
    assert resolve_loss_chunk(100, 257, "cpu") == 100
    for vocab_size in (2, 100, 1_000, 8_192, 16_000, 32_000):
        chunk = resolve_loss_chunk("auto", vocab_size, "cpu")
        assert chunk >= 256
        assert chunk == 256 or chunk * vocab_size * 4 * 3 <= 256 * 50_257 * 4


def test_auto_chunk_of_a_gpu_is_chosen_by_bytes() -> None:
    assert resolve_loss_chunk("auto", 50_257, "cuda") == 8192
    assert resolve_loss_chunk("auto", 50_257, "cuda", 80 << 30) == 8192
    assert resolve_loss_chunk("auto", 50_257, "cuda", 16 << 30) == 4096
    assert resolve_loss_chunk("auto", 257, "cuda", 16 << 30) == 65_536
    assert resolve_loss_chunk(100, 50_257, "cuda", 16 << 30) == 100
    for vocab_size in (2, 1_000, 32_000, 128_256, 262_144):
        assert resolve_loss_chunk("auto", vocab_size, "cuda") * vocab_size * 4 <= 2 << 30


LIMITED = """
import hashlib, json, resource, sys
import torch
from torch.nn.functional import cross_entropy, linear
from models import lm_loss

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
found = {"fp32": [digest(hidden, weight, labels) for _ in range(TIMES)]}
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
    """Loss and gradients in each type, hashed, so many times; for whole logits the error.

    limit_mb: more than it has before. Whole logits of 1,024 tokens are 206 MB, a chunk 51.
    """
    code = LIMITED.replace("TIMES", str(times)).replace("LIMIT_MB", str(limit_mb))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def limited(root: Path) -> list[dict[str, list[str]]]:
    """Found by two processes."""
    return [run_limited(root, times=2, limit_mb=192) for _ in range(2)]


@pytest.mark.slow
def test_whole_logits_never_exist(limited: list[dict[str, list[str]]]) -> None:
    for found in limited:
        assert found["whole"] != "fits"
        assert {"fp32", "bf16"} <= set(found)


@pytest.mark.slow
def test_every_bit_is_the_same_run_to_run_on_two_threads(limited: list[dict[str, list[str]]]) -> None:
    first, second = limited
    for dtype in ("fp32", "bf16"):
        assert len({*first[dtype], *second[dtype]}) == 1, dtype
    assert first["fp32"][0] != first["bf16"][0]


@in_tiles
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_losses_of_tokens_for_the_same_loss_and_gradients(chunk: int, reduction: str) -> None:
    hidden, weight, labels = make()
    of_tokens = torch.full((5, 10), torch.nan)
    shaped = hidden.view(5, 10, WIDTH), weight, labels.view(5, 10)
    value = lm_loss(*shaped, chunk=chunk, reduction=reduction, of_tokens=of_tokens)
    got = [value.detach(), *torch.autograd.grad(value, (hidden, weight))]
    for one, expected in zip(got, reference(*make(), reduction=reduction), strict=True):
        torch.testing.assert_close(one.double(), expected, rtol=1e-5, atol=1e-6)
    each = F.cross_entropy(hidden @ weight.T, labels, reduction="none")
    torch.testing.assert_close(of_tokens.flatten(), each.detach())


def test_softmax_and_sum_give_the_log_of_the_sum_of_exponents() -> None:
    logits, place = 10 * torch.randn(9, 40), torch.randint(40, (9, 1))
    probabilities, sums = logits.clone(), torch.empty(9, 1)
    chunked_loss._softmax(probabilities, place, sums)
    log_z = logits.gather(1, place) + sums.log()
    torch.testing.assert_close(log_z.squeeze(1).double(), logits.double().logsumexp(1), rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(probabilities.double(), logits.double().softmax(1), rtol=1e-4, atol=1e-9)
