"""The attention core against loops that follow the paper's equations literally."""

import itertools

import numpy as np
import pytest
import torch

from latentcode.models.attention import (
    apply_value_network,
    attention_scores,
    dropout_mask,
    nonlinearity,
    normalize,
)
from latentcode.models.config import NONLINEARITIES, NORMALIZATIONS

B, Q, K, H, D = 2, 3, 4, 5, 2


def _draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _phi(name: str, x: float) -> float:
    return float(nonlinearity(name)(torch.tensor(x, dtype=torch.float64)))


def test_scores_are_scaled_dot_products_with_bias_before_the_mask() -> None:
    q, k, bias = _draw(B, Q, H, D), _draw(B, K, H, D, seed=1), _draw(1, H, Q, K, seed=2)
    mask = _draw(1, 1, Q, K, seed=3) > 0
    for kind, absent in (("softmax", torch.finfo(torch.float64).min), ("none", 0.0),
                         ("rms_head", 0.0),
                         ("softmax_rms_head", torch.finfo(torch.float64).min)):
        scores = attention_scores(q, k, bias, mask, kind)
        for b, h, i, j in itertools.product(range(B), range(H), range(Q), range(K)):
            wanted = float(q[b, i, h] @ k[b, j, h]) / D**0.5 + float(bias[0, h, i, j])
            if not mask[0, 0, i, j]:
                wanted = absent
            assert float(scores[b, h, i, j]) == pytest.approx(wanted, abs=1e-12)


def test_normalizations() -> None:
    scores = _draw(B, H, Q, K)
    x = scores.numpy()
    softmax = np.exp(x) / np.exp(x).sum(axis=3, keepdims=True)
    rms = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
    both = softmax / np.sqrt((softmax**2).mean(axis=1, keepdims=True) + 1e-6)
    for kind, wanted in (("softmax", softmax), ("rms_head", rms), ("none", x),
                         ("softmax_rms_head", both)):
        np.testing.assert_allclose(normalize(scores, kind).numpy(), wanted, atol=1e-12)


def test_a_masked_key_is_absent_after_every_normalization() -> None:
    q, k = _draw(B, Q, H, D), _draw(B, K, H, D, seed=1)
    mask = torch.ones(1, 1, Q, K, dtype=torch.bool)
    mask[..., 1] = False
    for kind in NORMALIZATIONS:
        code = normalize(attention_scores(q, k, None, mask, kind), kind)
        assert (code[..., 1] == 0).all()
        assert (code[..., 0] != 0).any()


@pytest.mark.parametrize("phi", NONLINEARITIES)
@pytest.mark.parametrize("kind", ["linear", "hyla", "hyla_linear", "deep"])
def test_value_networks_follow_their_equations(kind: str, phi: str) -> None:
    code, v, w2 = _draw(B, H, Q, K), _draw(B, K, H, D, seed=1), _draw(H, D, D, seed=2)
    z = apply_value_network(code, v, kind, nonlinearity(phi), w2)
    for b, q, h in itertools.product(range(B), range(Q), range(H)):
        wanted = np.zeros(D)
        for k in range(K):
            a = code[b, :, q, k].numpy()
            if kind == "linear":
                hidden = [_phi(phi, float(x)) for x in v[b, k, h]]
            else:
                hidden = [float(sum(a[i] * v[b, k, i, d] for i in range(H))) for d in range(D)]
                if kind != "hyla_linear":
                    hidden = [_phi(phi, x) for x in hidden]
                if kind == "deep":
                    generated = sum(a[i] * w2[i].numpy() for i in range(H))
                    hidden = [_phi(phi, float(x)) for x in np.array(hidden) @ generated]
            wanted += a[h] * np.array(hidden)
        np.testing.assert_allclose(z[b, q, h].numpy(), wanted, atol=1e-12)


def test_dropout_forms() -> None:
    shape, generator = (64, 8, 16, 16), torch.Generator().manual_seed(0)
    shared = dropout_mask(shape, 0.25, "shared", generator, dtype=torch.float64)
    assert shared.shape == (1, 1, 16, 16)
    independent = dropout_mask(shape, 0.25, "independent", generator, dtype=torch.float64)
    assert independent.shape == shape
    assert set(independent.unique().tolist()) == {0.0, 1.0 / 0.75}
    # 131,072 independent edges: four standard errors of the kept share are 0.005.
    assert float((independent > 0).float().mean()) == pytest.approx(0.75, abs=0.005)
