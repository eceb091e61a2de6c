"""The attention core against loops that follow the paper's equations literally."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from places import GOLDEN

from latentcode.models import attention
from latentcode.models.attention import (
    apply_value_network,
    attention_scores,
    dropout_mask,
    nonlinearity,
    normalize,
    relative_bias,
    relative_bias_rows,
    relative_position_buckets,
    rotary,
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


FACTS = GOLDEN / "buckets.npz"


def _bucket_files() -> list[str]:
    with np.load(FACTS) as facts:
        return sorted(facts.files)


@pytest.mark.parametrize("name", _bucket_files())
def test_buckets_are_the_official_ones(name: str) -> None:
    n_buckets, max_distance, length = (
        int("".join(filter(str.isdigit, part))) for part in name.split("_")[1:])
    with np.load(FACTS) as facts:
        official = facts[name]
    ours = relative_position_buckets(length, length, n_buckets, max_distance)
    np.testing.assert_array_equal(ours, official)


def test_keys_at_or_after_the_query_share_bucket_zero() -> None:
    buckets = relative_position_buckets(32, 32, 32, 32)
    assert (np.triu(buckets) == 0).all()
    assert buckets[31, :12].tolist() == [31, 30, 29, 28, 28, 27, 26, 25, 24, 23, 22, 21]


def test_relative_bias_reads_the_table() -> None:
    table = torch.arange(2 * 4, dtype=torch.float64).reshape(2, 4)
    bias = relative_bias(table, 3, 3, 4)
    assert bias.shape == (1, 2, 3, 3)
    assert bias[0, 1].tolist() == [[4, 4, 4], [5, 4, 4], [6, 5, 4]]


def test_on_a_gpu_a_product_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64,
                        requires_grad=True)
    weight = torch.randn(2, 1, 3, 5, 7, generator=torch.Generator().manual_seed(1)).double()
    results = []
    for by_product in (False, True):
        monkeypatch.setattr(attention, "_by_product", lambda *_, answer=by_product: answer)
        bias = relative_bias(table, 5, 7, 4)
        results.append((bias, *torch.autograd.grad((bias * weight).sum(), [table])))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-13, atol=1e-13)


def test_rotary_scores_depend_on_distance_only() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(8, generator=generator, dtype=torch.float64) for _ in range(2))
    rows = rotary(torch.stack([q] * 12)[None, :, None])[0, :, 0]
    columns = rotary(torch.stack([k] * 12)[None, :, None])[0, :, 0]
    scores = rows @ columns.T
    for offset in range(-11, 12):
        diagonal = scores.diagonal(offset)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-12)
    assert torch.allclose(rows.norm(dim=1), q.norm().expand(12))
    assert not torch.allclose(scores[0, 0], scores[5, 0])


def test_rows_of_the_bias_are_those_of_the_whole() -> None:
    table = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    query = torch.tensor([[0, 39, 7], [21, 21, 1]])
    whole = relative_bias(table, 40, 33, 16)[0]
    rows = relative_bias_rows(table, query, 40, 33, 16)
    assert torch.equal(rows, whole[:, query].transpose(0, 1))
