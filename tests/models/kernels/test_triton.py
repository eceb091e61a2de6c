"""The kernels in Triton, run by its interpreter on a CPU, against the reference functions."""

from __future__ import annotations

from collections.abc import Iterator
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
    reference_of_rounded,
    relative_error,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from latentcode.errors import ConfigError
from latentcode.models.config import ATTENTION_KINDS, NONLINEARITIES, ModelConfig, with_kind
from latentcode.models.kernels.fused import attention_by
from latentcode.models.transformer import HookedTransformer

pytest.importorskip("triton", reason="Triton is for Linux alone")

# The interpreter computes by numpy, which warns of infinities that a GPU says nothing of.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in .*:RuntimeWarning")

# The interpreter takes seconds for what a kernel does at once. What is left out here is a branch of
# `phi` alone, which `test_every_nonlinearity` takes.
DISTINCT = [kind for kind in KINDS if kind[1] == "hyla_linear" or kind[2] != "identity"]
FLOAT32, BFLOAT16 = 1e-5, 5e-3
"""How far from float64 the root mean square of an error may be, as a share of that of the result:
the latter is two roundings of the code and of a hidden unit, and one of the result."""


@pytest.fixture(autouse=True)
def by_triton() -> Iterator[None]:
    with attention_by("triton"):
        yield


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "identity" not in kind], ids="-".join)
def test_small(kind: Any) -> None:
    compare(attention_inputs(1, 3, 4, 3, 2, 3, dtype=torch.float32), False, kind, FLOAT32)


@pytest.mark.slow
# In turn, so that every normalization and every value network meets both.
@pytest.mark.parametrize(("kind", "causal"), [(kind, bool(i % 2))
                                              for i, kind in enumerate(DISTINCT)])
def test_several_tiles_and_members(kind: Any, causal: bool) -> None:
    b, n_query, n_key = (1, 33, 18) if causal else (2, 5, 19)
    inputs = attention_inputs(b, n_query, n_key, 3, 5, 6, members=2, dtype=torch.float32)
    compare(inputs, causal, kind, FLOAT32)


@pytest.mark.slow
@settings(max_examples=5, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS), causal=st.booleans(), b=st.integers(1, 2),
    n_query=st.integers(1, 20), n_key=st.integers(1, 20), h=st.sampled_from([1, 2, 5, 16]),
    d=st.sampled_from([(2, 2), (1, 3), (8, 1), (20, 40)]), members=st.sampled_from([0, 1, 2]),
    bias=st.booleans(), dropout=st.booleans())
@example(("rms_head", "hyla", "relu"), True, 2, 3, 37, 1, (1, 3), 2, False, True)
@example(("softmax", "linear", "identity"), False, 1, 37, 3, 5, (8, 1), 0, True, False)
def test_any_shape(
    kind: Any, causal: bool, b: int, n_query: int, n_key: int, h: int, d: tuple[int, int],
    members: int, bias: bool, dropout: bool,
) -> None:
    compare(attention_inputs(b, n_query, n_key, h, *d, members=members, bias=bias,
                             dropout=dropout, dtype=torch.float32), causal, kind, FLOAT32)


@pytest.mark.slow
@pytest.mark.parametrize(("h", "d", "dv"), [(64, 2, 4), (3, 96, 70), (3, 17, 65)])
def test_features_in_chunks(h: int, d: int, dv: int) -> None:
    for kind in (("rms_head", "hyla", "gelu"), ("softmax_rms_head", "linear", "silu")):
        inputs = attention_inputs(1, 18, 17, h, d, dv, dtype=torch.float32)
        compare(inputs, True, kind, FLOAT32)


@pytest.mark.slow
@pytest.mark.parametrize("value_network", ["linear", "hyla"])
@pytest.mark.parametrize("phi", NONLINEARITIES)
def test_every_nonlinearity(phi: str, value_network: str) -> None:
    kind = ("rms_head", value_network, phi)
    compare(attention_inputs(2, 4, 4, 3, 2, 2, dtype=torch.float32), False, kind, FLOAT32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTINCT, ids="-".join)
def test_bfloat16(kind: Any) -> None:
    inputs = attention_inputs(1, 18, 17, 8, 16, 16, members=1, dtype=torch.bfloat16)
    has_corner = kind[1:] == ("hyla", "relu")
    compare(inputs, False, kind, BFLOAT16, reference_of_rounded if has_corner else reference)


def test_bias_and_mask_stay_exact_beside_bfloat16() -> None:
    q, k, v, bias, kept = attention_inputs(2, 3, 4, 3, 2, 3, dtype=torch.bfloat16)
    exact = (bias.detach().float() + 1e-3).requires_grad_()
    kind = ("rms_head", "hyla", "silu")
    z = fused(q, k, v, exact, kept.float(), False, kind)
    z.sum().backward()
    assert z.dtype == torch.bfloat16
    assert exact.grad.dtype == torch.float32
    wanted = reference(*(x.detach().double() for x in (q, k, v, exact, kept)), False, kind)
    assert relative_error(z, wanted) < BFLOAT16
    with pytest.raises(ConfigError, match=r"k has type torch\.float32; expected that of q"):
        fused(q, k.float(), v, bias, kept, False, kind)


def test_the_small_slopes_and_values_of_tanh() -> None:
    for scale in (1e-6, 1e-3, 0.24, 0.26, 30.0):
        inputs = attention_inputs(1, 1, 1, 1, 1, 1, bias=False, dropout=False, dtype=torch.float32)
        inputs[2] = torch.full_like(inputs[2], scale).requires_grad_()  # type: ignore[arg-type]
        compare(inputs, False, ("rms_head", "hyla", "tanh"), FLOAT32)


def test_what_is_not_finite_stays_visible() -> None:
    for bad in (float("nan"), float("inf")):
        inputs = attention_inputs(2, 3, 3, 2, 2, 2, dropout=False, dtype=torch.float32)
        values = inputs[2]
        with torch.no_grad():
            values[1, 2] = bad
        z = fused(*inputs, False, ("rms_head", "hyla", "relu"))
        assert z[0].isfinite().all()
        assert not z[1].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in ATTENTION_KINDS if kind != "hyla_deep"])
def test_a_model_computes_and_learns_the_same(kind: str) -> None:
    config = with_kind(ModelConfig(n_layers=1), kind)
    torch.manual_seed(0)
    model = HookedTransformer(config)
    x = draw(0, 2, 5, config.d_input, dtype=torch.float32)
    found = []
    for kernel in ("triton", "plain"):
        with attention_by(kernel):
            model.zero_grad()
            torch.manual_seed(1)  # of the dropout
            y = model(x)
            y.square().sum().backward()
            found.append([y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for got, wanted in zip(*found, strict=True):
        # Of a softmax the bias of the keys has no gradient but rounding.
        assert relative_error(got, wanted.double()) < 1e-4 or (got - wanted).abs().max() < 1e-5


@pytest.mark.slow
def test_the_operators_are_sound() -> None:
    """Their stand-ins say the shapes and types that they give, also where they are traced."""
    from latentcode.models.kernels.gpu import launch

    q, k, v, bias, kept = (None if x is None else x.detach() for x in attention_inputs(
        2, 3, 4, 2, 2, 3, members=2, dtype=torch.float32))
    tables = (bias[:, 0], kept[:, 0, 0])
    for options, wants_bias in (([2, 1, 1, 0], True), ([1, 0, 0, 1], False)):
        torch.library.opcheck(launch.attention, (q, k, v, *tables, options, "emulated"))
        z, lse = launch.attention(q, k, v, *tables, options, "emulated")
        torch.library.opcheck(launch.attention_backward, (
            z, q, k, v, *tables, lse, options, "emulated", wants_bias))
