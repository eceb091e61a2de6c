"""Bucket formula against the official numbers; rotary positions by their defining property."""


import numpy as np
import pytest
import torch
from places import GOLDEN

from latentcode.models import attention
from latentcode.models.attention import (
    relative_bias,
    relative_bias_rows,
    relative_position_buckets,
    rotary,
)

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
