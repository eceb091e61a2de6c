"""The fused attention core against the reference functions, forward and every gradient."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_cases import (
    KINDS,
    attention_inputs,
    compare,
    draw,
    fused,
    reference,
    relative_error,
    results,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from latentcode.models.config import ATTENTION_KINDS, NONLINEARITIES, ModelConfig, with_kind
from latentcode.models.kernels import cpu
from latentcode.models.kernels.fused import (
    SHARED_ROWS,
    Case,
    attention_by,
    gelu,
    kernel_for,
    written_out,
)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_forward_and_gradients_are_those_of_the_reference(kind: Any, causal: bool) -> None:
    for members, (b, n_query, n_key) in itertools.product(
            (0, 2), ((19, 5, 5), (16, 4, 7), (3, 7, 4), (33, 1, 1))):
        compare(attention_inputs(b, n_query, n_key, 4, 2, 3, members=members), causal, kind, 1e-10)
    compare(attention_inputs(40, 12, 12, 8, 2, 2, dtype=torch.float32), causal, kind, 1e-5)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    kind=st.sampled_from(KINDS), causal=st.booleans(), b=st.integers(1, 40),
    n_query=st.integers(1, 7), n_key=st.integers(1, 7), h=st.sampled_from([1, 2, 5]),
    d=st.sampled_from([(2, 3), (1, 3), (8, 1)]), members=st.sampled_from([0, 1, 3]),
    bias=st.booleans(), dropout=st.booleans())
@example(("rms_head", "hyla", "relu"), True, 17, 3, 6, 1, (1, 3), 2, False, True)
@example(("softmax", "linear", "identity"), False, 17, 6, 3, 5, (8, 1), 0, True, False)
def test_any_shape(
    kind: Any, causal: bool, b: int, n_query: int, n_key: int, h: int, d: tuple[int, int],
    members: int, bias: bool, dropout: bool,
) -> None:
    inputs = attention_inputs(b, n_query, n_key, h, *d, members=members, bias=bias, dropout=dropout)
    compare(inputs, causal, kind, 1e-10)


@pytest.mark.parametrize("value_network", ["linear", "hyla"])
@pytest.mark.parametrize("phi", NONLINEARITIES)
def test_every_nonlinearity(phi: str, value_network: str) -> None:
    compare(attention_inputs(18, 4, 4, 4, 2, 3), False, ("rms_head", value_network, phi), 1e-10)
    compare(attention_inputs(18, 4, 4, 3, 2, 2, dtype=torch.float32), False,
             ("rms_head", value_network, phi), 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("shape", [(4, 3, 32), (2, 5, 7, 16), (16,), (0, 16)])
def test_gelu_is_that_of_torch(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    for x in (draw(0, *shape, dtype=dtype), 30.0 * draw(1, *shape, dtype=dtype)):
        x.requires_grad_()
        exact = x.detach().double().requires_grad_()
        y, wanted = gelu(x), torch.nn.functional.gelu(exact, approximate="tanh")
        assert type(y.grad_fn).__name__ == "_CpuGeluBackward"
        dy = draw(2, *shape, dtype=dtype)
        dx, dx_wanted = torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(
            wanted, exact, dy.double())[0]
        for got, true in ((y, wanted), (dx, dx_wanted)):
            assert got.dtype == dtype
            torch.testing.assert_close(got.double(), true, atol=tolerance, rtol=tolerance)


def test_gelu_leaves_no_subnormal_numbers() -> None:
    """A matrix product with them takes a processor many times as long."""
    x = torch.linspace(-20.0, 0.0, 16 * 64).requires_grad_()
    y = gelu(x)
    dx = torch.autograd.grad(y, x, torch.full_like(x, 1e-12))[0]
    for numbers in (y.detach(), dx):
        assert numbers[0] == 0.0
        assert not ((numbers != 0.0) & (numbers.abs() < torch.finfo().tiny)).any()


def test_gelu_elsewhere_is_torchs_own() -> None:
    """Numbers that fill no row, that lie apart, of half precision, or looked at by torch.func."""
    for x in (draw(0, 5, 3), draw(0, 32, 16).T, draw(0, 4, 16, dtype=torch.bfloat16)):
        assert torch.equal(gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))
    row = draw(0, 16)
    torch.testing.assert_close(torch.func.vmap(gelu)(row[None])[0], gelu(row))
    with written_out():
        assert torch.autograd.gradgradcheck(gelu, row.requires_grad_())


@pytest.mark.parametrize("spread", [1e-3, 30.0, 1e3])
def test_float32_softmax_of_small_and_large_scores(spread: float) -> None:
    inputs = attention_inputs(16, 6, 6, 2, 2, 2, dtype=torch.float32)
    inputs[3] = (inputs[3].detach() * spread).requires_grad_()
    kind = ("softmax", "linear", "identity")
    with torch.no_grad():
        wanted = reference(*[None if x is None else x.double() for x in inputs], False, kind)
        assert relative_error(fused(*inputs, False, kind), wanted) < 1e-5


@pytest.mark.parametrize(("kind"), [("rms_head", "hyla", "relu"),
                                    ("softmax_rms_head", "linear", "silu")], ids="-".join)
def test_gradcheck(kind: Any) -> None:
    inputs = attention_inputs(3, 3, 3, 2, 2, 3)
    assert torch.autograd.gradcheck(
        lambda *x: fused(*x, inputs[4], True, kind), inputs[:4], check_undefined_grad=False)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_visible(kind: Any, bad: float) -> None:
    for which in range(3):
        inputs = attention_inputs(18, 3, 3, 2, 2, 2, dropout=False, dtype=torch.float32)
        with torch.no_grad():
            inputs[which][17, 2] = bad
        z, *gradients = results(fused, inputs, False, kind)
        wanted = results(reference, inputs, False, kind)[0]
        assert not z[17].isfinite().all()
        # Instances share lanes, not numbers.
        assert z[:17].isfinite().all()
        assert torch.equal(z.isfinite(), wanted.isfinite())
        assert not all(gradient.isfinite().all() for gradient in gradients)


def test_equal_bit_for_bit_whatever_the_number_of_threads() -> None:
    inputs = attention_inputs(70, 6, 6, 3, 2, 2, members=2, dtype=torch.float32)
    x = draw(0, 4_096, 64, dtype=torch.float32).requires_grad_()
    assert x.numel() // 16 >= SHARED_ROWS
    assert torch.get_num_threads() == 1
    found = []
    for threads in (1, 1, 2, 3):
        torch.set_num_threads(threads)
        try:
            y = gelu(x)
            found.append([y, *torch.autograd.grad(y.sum(), x),
                          *results(fused, inputs, False, ("rms_head", "hyla", "relu"))])
        finally:
            torch.set_num_threads(1)
        assert all(map(torch.equal, found[0], found[-1]))


def test_views_are_read_in_place_and_left_as_they_are() -> None:
    kind = ("rms_head", "hyla", "relu")
    packed = draw(6, 18, 5, 3, 4, 2, dtype=torch.float32).requires_grad_()
    views = packed.unbind(2)
    kept = (draw(7, 5, 5) > -1).float().expand(1, 1, 5, 5)
    bias = draw(8, 5, 5, 4, dtype=torch.float32).permute(2, 0, 1)[None]
    before = packed.detach().clone()
    got = fused(*views, bias, kept, False, kind)
    wanted = reference(*views, bias, kept, False, kind)
    assert relative_error(got, wanted.detach().double()) < 1e-5
    assert torch.equal(packed, before)
    # The cotangent of a sum is one number seen everywhere.
    for function in (torch.Tensor.sum, lambda z: (z.transpose(1, 3) * draw(
            9, *z.mT.shape[:1], 2, 4, 5, dtype=torch.float32)).sum()):
        gradients = [torch.autograd.grad(function(z), packed, retain_graph=True)[0]
                     for z in (got, wanted)]
        assert relative_error(gradients[0], gradients[1].double()) < 1e-5
    spread_out = draw(10, 18, 5, 4, 4, dtype=torch.float32).requires_grad_()[..., ::2]
    spread = spread_out, *views[1:], bias, kept, False, kind
    assert relative_error(fused(*spread), reference(*spread).double()) < 1e-5


@pytest.fixture(params=["cpu", "triton"])
def n_instances(request: pytest.FixtureRequest) -> Iterator[int]:
    """Compute by a kernel, on more instances than it has lanes."""
    if request.param == "triton":
        pytest.importorskip("triton", reason="Triton is for Linux alone")
    with attention_by(request.param):
        yield {"cpu": 20, "triton": 3}[request.param]


@pytest.mark.parametrize("kind", [("softmax", "linear", "identity"),
                                  ("softmax_rms_head", "hyla", "relu")], ids="-".join)
def test_a_member_computes_what_it_computes_alone(n_instances: int, kind: Any) -> None:
    inputs = attention_inputs(n_instances, 4, 4, 3, 2, 2, members=3, dtype=torch.float32)
    together = results(fused, inputs, False, kind)
    for member in range(3):
        alone = [x[member].detach() for x in inputs if x is not None]
        assert torch.equal(together[0][member], fused(*alone, False, kind))


def test_gradients_only_where_they_are_wanted(n_instances: int) -> None:
    kind = ("none", "linear", "relu")
    q, k, v, bias, kept = attention_inputs(n_instances, 3, 3, 2, 2, 2, dtype=torch.float32)
    z = fused(q, k.detach(), v.detach(), bias.detach(), kept, False, kind)
    z.sum().backward()
    assert q.grad is not None
    assert bias.grad is None
    with torch.no_grad():
        assert not fused(q, k, v, bias, kept, False, kind).requires_grad


def test_an_empty_batch(n_instances: int) -> None:
    inputs = attention_inputs(0, 3, 3, 2, 2, 2, dtype=torch.float32)
    z, *gradients = results(fused, inputs, False, ("rms_head", "hyla", "relu"))
    assert z.shape == (0, 3, 2, 2)
    assert (gradients[3] == 0).all()


def _sum_in_a_process(threads: int) -> float:
    torch.set_num_threads(threads)
    inputs = attention_inputs(40, 4, 4, 4, 2, 3)
    return float(results(fused, inputs, False, ("rms_head", "hyla", "relu"))[1].sum())


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # there are other threads
def test_worker_processes(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this platform does not {method}")
    if method == "fork" and torch.cuda.is_available():
        pytest.skip("autograd's threads for a GPU do not survive a fork")
    torch.set_num_threads(2)
    try:
        wanted = _sum_in_a_process(2)
    finally:
        torch.set_num_threads(1)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_sum_in_a_process, [1, 1], chunksize=1) == [wanted, wanted]


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.caching import CompileResultCacheImpl

    from latentcode.models.kernels.cpu import compiled

    def double(x: int) -> int:
        return 2 * x

    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    assert compiled(double)(21) == 42


@pytest.mark.slow
def test_what_was_compiled_is_forgotten_with_the_arithmetic_it_is_made_of(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    package.mkdir()
    for name in ("cpu.py", "lanes.py"):
        text = Path(cpu.__file__).with_name(name).read_text(encoding="utf-8")
        (package / name).write_text(text.replace("latentcode.models.kernels", "copied"),
                                    encoding="utf-8")

    def gelu_of_3() -> tuple[float, int]:
        code = ("import numpy as np; from copied import cpu; x = np.full(16, 3.0); "
                "y = np.empty(16); cpu.gelu(0, 1, x, y); print(y[0], sum(cpu.gelu.stats.cache_hits"
                ".values()))")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
                       "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, "-c", code], env=environment, check=True,
                              capture_output=True, text=True)
        value, hits = done.stdout.split()
        return float(value), int(hits)

    before = gelu_of_3()
    assert before == (pytest.approx(2.9963627), 0)
    assert gelu_of_3() == (before[0], 1)
    lanes = package / "lanes.py"
    text = lanes.read_text(encoding="utf-8")
    product = "operator.mul, lambda builder, a, b: builder.fmul("
    assert text.count(product) == 1
    lanes.write_text(text.replace(product, product.replace("fmul", "fadd")), encoding="utf-8")
    after = gelu_of_3()
    assert after[1] == 0
    assert after[0] != before[0]


def _kernel(config: ModelConfig, device: str = "cpu", dtype: torch.dtype = torch.float32,
            n_keys: int = 8) -> str:
    return kernel_for(Case.of_training(config, device, dtype, n_keys))


def test_which_models_are_served() -> None:
    config = ModelConfig()
    served = {kind: _kernel(with_kind(config, kind)) for kind in ATTENTION_KINDS}
    assert {kind for kind, kernel in served.items() if kernel != "cpu"} == {"hyla_deep"}
    assert served["hyla_deep"] == "plain"
    assert _kernel(config, dtype=torch.float64) == "cpu"
    assert _kernel(config, dtype=torch.bfloat16) == "plain"
    independent = replace(config, attention_dropout_form="independent", attention_dropout=0.1)
    assert _kernel(independent) == "plain"
    assert _kernel(replace(independent, attention_dropout=0.0)) == "cpu"
    assert _kernel(replace(config, d_head=64)) == "plain"
    assert _kernel(replace(config, d_head_v=64)) == "plain"
