"""The Triton kernel of the loss without a GPU: its arithmetic in Triton's interpreter, its compiled code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda_build

ARITHMETIC = """
import itertools
import torch
from torch.nn.functional import cross_entropy
from models.loss import device_loss
from models.loss import loss_kernel
from models.loss.chunked_loss import Chunks

loss_kernel.MOST_COLUMNS = 128  # a row is several blocks
dtypes = torch.float32, torch.bfloat16
cases = itertools.product((300, 257, 64), (None, 5.0), (0.0, 0.01), dtypes, (True, False))
for vocab, softcap, z_loss, dtype, gradient in cases:
    torch.manual_seed(0)
    memory = torch.full((20, 320), torch.nan, dtype=dtype)
    logits = memory[:, :vocab]
    logits.copy_(3 * torch.randn(20, vocab))
    logits[4] *= 40  # targets without probability in fp32
    labels = torch.randint(vocab, (20,))
    labels[::5] = -100
    exact = logits.double().requires_grad_()
    capped = exact if softcap is None else softcap * torch.tanh(exact / softcap)
    expected = cross_entropy(capped, labels, reduction="none")
    penalty = z_loss * capped.logsumexp(1).square().where(labels != -100, 0.0)
    (expected_gradient,) = torch.autograd.grad((expected + penalty).sum(), exact)
    plain, how = logits.clone(), Chunks(20, -100, dtype, gradient, softcap, z_loss)
    plain_losses = device_loss._by_operations(plain, labels, how, gradient=gradient)
    losses = loss_kernel.cross_entropy_(logits, labels, -100, softcap, z_loss, gradient)
    for found in (losses, plain_losses):
        torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    if gradient:
        tolerance = dict(rtol=1e-2, atol=1e-6) if dtype == torch.bfloat16 else dict(rtol=1e-4, atol=1e-6)
        for found in (logits, plain):
            torch.testing.assert_close(found.double(), expected_gradient, **tolerance)
        assert (memory[:, vocab:] == 0).all()
"""

CODE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from models.loss.loss_kernel import MOST_COLUMNS, _cross_entropy

arguments = {"logits": "*bf16", "labels": "*i64", "losses": "*fp32", "stride": "i32", "vocab": "i32",
             "ignored": "i32", "softcap": "fp32", "z_loss": "fp32"}
options = {"CAPS": True, "GRADIENT": True, "COLUMNS": MOST_COLUMNS}
for capability in (80, 90):
    source = ASTSource(
        fn=_cross_entropy, signature=arguments | dict.fromkeys(options, "constexpr"), constexprs=options,
        attrs={(0,): [["tt.divisibility", 16]], (3,): [["tt.divisibility", 16]]},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 32})
    assert "v4.b32" in compiled.asm["ptx"], "accesses of 16 bytes"
    assert compiled.asm["cubin"]
"""


@pytest.mark.parametrize(("code", "interpret"), [(ARITHMETIC, "1"), (CODE, "0")], ids=["arithmetic", "code"])
def test_kernel_is_cross_entropy_and_compiles(root: Path, tmp_path: Path, code: str, interpret: str) -> None:
    python = Path(os.environ.get("HIGHWATER_CUDA_VENV", "/nonexistent")) / "bin" / "python"
    if not python.exists():
        pytest.skip("HIGHWATER_CUDA_VENV names no environment with the CUDA build of torch")
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [str(python), "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
