"""Softmax and linear attention over long sequences against the reference functions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_cases import attention_inputs, compare

from latentcode.models.kernels.fused import CHUNK, LONG, Case, Kind, attention_by, kernel_for

SIMPLE = {"sdpa": "softmax", "linear": "none"}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kernel", SIMPLE)
def test_forward_and_gradients_are_those_of_the_reference(kernel: str, causal: bool) -> None:
    shapes = ((1, 1), (7, 7), (2 * CHUNK + 5, 2 * CHUNK + 5), (CHUNK, CHUNK), (70, 40), (5, 130))
    with attention_by(kernel):
        for n_query, n_key in shapes:
            for members, phi in ((0, "identity"), (2, "silu")):
                inputs = attention_inputs(2, n_query, n_key, 3, 20, 5, members=members, bias=False,
                                          dropout=False)
                compare(inputs, causal, (SIMPLE[kernel], "linear", phi), 1e-10)
        inputs = attention_inputs(1, 300, 300, 2, 32, 32, bias=False, dropout=False,
                                  dtype=torch.float32)
        compare(inputs, causal, (SIMPLE[kernel], "linear", "identity"), 1e-5)


def test_when_they_are_chosen() -> None:
    """For long sequences without bias and dropout; a processor's kernel has other small heads."""
    def kernel(name: str, n_keys: int, d: int, **others: object) -> str:
        case = Case(Kind(name, "linear"), torch.device("cpu"), torch.float32, n_keys, 8, d, False,
                    None)
        return kernel_for(replace(case, **others))

    assert kernel("softmax", LONG, 64) == "sdpa"
    assert kernel("none", LONG, 64) == "linear"
    assert kernel("softmax", LONG - 1, 64) == kernel("rms_head", LONG, 64) == "plain"
    assert kernel("softmax", LONG, 16) == "sdpa"
    assert kernel("none", LONG, 16) == "linear"
    assert kernel("softmax", LONG - 1, 16) == kernel("none", LONG - 1, 16) == "cpu"
    assert kernel("rms_head", LONG, 16) == kernel("softmax", LONG, 16, has_bias=True) == "cpu"
    assert kernel("softmax", LONG, 64, has_bias=True) == "plain"
    assert kernel("none", LONG, 64, dropout="shared") == "plain"
