"""z of given codes by the kernel is that of the plain functions."""

from __future__ import annotations

import pytest
import torch

from latentcode.models.attention import apply_value_network, nonlinearity
from latentcode.models.kernels.fused import Kind, attention_of_codes, written_out

SHAPES = [(5, 4, 7, 7, 3), (3, 16, 1, 36, 4), (1, 1, 2, 1, 1)]
"""Instances, heads, queries, keys, features of a value."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [Kind("rms_head", "hyla", "relu"), Kind("none", "hyla_linear")])
def test_as_the_plain_functions(kind: Kind, shape: tuple[int, ...]) -> None:
    n, n_heads, n_queries, n_keys, d = shape
    generator = torch.Generator().manual_seed(0)
    for dtype, near in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        code = torch.randn(n, n_keys, n_heads, n_queries, generator=generator, dtype=dtype)
        code = code.permute(0, 2, 3, 1)  # in another order in memory
        v = torch.randn(n, n_keys, n_heads, d, generator=generator, dtype=dtype)
        with torch.no_grad():
            z = attention_of_codes(kind, code, v)
        wanted = apply_value_network(code, v, kind.value_network, nonlinearity(kind.phi))
        torch.testing.assert_close(z, wanted, rtol=near, atol=near * 10)


def test_what_is_no_number_stays_so() -> None:
    code, v = torch.ones(1, 2, 1, 3), torch.full((1, 3, 2, 4), torch.nan)
    with torch.no_grad():
        z = attention_of_codes(Kind("none", "hyla", "relu"), code, v)
    assert z is not None
    assert z.isnan().all()


def test_where_it_does_not_serve() -> None:
    code, v = torch.ones(1, 2, 1, 3), torch.ones(1, 3, 2, 4)
    hyla = Kind("rms_head", "hyla", "relu")
    assert attention_of_codes(hyla, code, v) is None  # it has no gradients
    with torch.no_grad():
        assert attention_of_codes(Kind("softmax", "linear"), code, v) is None
        assert attention_of_codes(hyla, code.bfloat16(), v.bfloat16()) is None
        with written_out():
            assert attention_of_codes(hyla, code, v) is None
