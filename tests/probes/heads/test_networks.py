"""The networks of clusters are those of matrices made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_texts import batches
from small_language_models import SmallModels

from latentcode.models.hypernetwork import key_inputs
from latentcode.probes.heads.clusters import (
    Clusters,
    cluster_codes,
    cluster_networks,
    participation_ratio,
)
from latentcode.probes.heads.codes import HeadSample, sample_codes
from latentcode.prompts import LanguageModel, load_language_model

Found = tuple[LanguageModel, HeadSample, Clusters]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def found(request: pytest.FixtureRequest, small_models: SmallModels) -> Found:
    asked = load_language_model(small_models(request.param))
    sample = sample_codes(asked, batches(asked, 30, 10), n=150)
    return asked, sample, cluster_codes(sample.codes, candidates=(3,), n_bootstrap=50)


def by_hand(model: object, layer: int, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sum_h a_h W_V^h W_O^h and sum_h a_h b_V^h W_O^h, a head after the other."""
    attention = model.blocks[layer].attn  # type: ignore[attr-defined]
    w_v, w_o, b_v = attention.W_V, attention.W_O, attention.b_V
    share = len(w_o) // len(w_v)
    d = w_o.shape[-1]
    matrix, offset = np.zeros((d, d)), np.zeros(d)
    for h, a in enumerate(code):
        matrix += a * (w_v[h // share].double() @ w_o[h].double()).detach().numpy()
        if b_v is not None:
            offset += a * (b_v[h // share].double() @ w_o[h].double()).detach().numpy()
    return matrix, offset


def test_norms_and_ratios(found: Found) -> None:
    asked, sample, clusters = found
    networks, _, left_out = cluster_networks(*found)
    assert not left_out
    for said, place in (("own", "1"), ("all", "all")):
        cluster = clusters.assigned[place]
        matrices = [by_hand(asked.model, 1, sample.codes.scores[cluster == c, 1, 0].mean(
            axis=0, dtype=np.float64))[0] for c in range(3)]
        rows = networks[(networks["clusters"] == said) & (networks["layer"] == 1)]
        for row, matrix in zip(rows.itertuples(), matrices, strict=True):
            singular = np.linalg.svd(matrix, compute_uv=False)
            assert row.norm == pytest.approx(np.linalg.norm(matrix), rel=1e-4)
            assert row.participation_ratio == pytest.approx(
                (singular**2).sum() ** 2 / (singular**4).sum(), rel=1e-4)
            assert row.n == (cluster == row.cluster).sum()


def test_what_they_say(found: Found) -> None:
    asked, sample, clusters = found
    _, says, _ = cluster_networks(*found)
    x = sample.codes.scores[:, :, 0].astype(np.float64)
    for row in says[says["clusters"] == "own"].itertuples():
        label = sample.codes.labels.loc[row.number]
        ids = torch.from_numpy(sample.tokens[int(sample.rows[row.number])].astype(np.int64))
        key = label["key_position"]
        inputs = key_inputs(asked.model, [(ids[None], torch.tensor([[key]]))], [row.layer])
        mine = clusters.assigned[str(row.layer)] == row.cluster
        for code, said in ((x[mine, row.layer].mean(0), row.logit),
                           (x[:, row.layer].mean(0), row.by_mean)):
            matrix, offset = by_hand(asked.model, row.layer, code)
            out = inputs[0, 0, 0].double().numpy() @ matrix + offset
            logits = by_transformers(asked, out)
            order = np.argsort(-logits)
            if said is row.logit:
                token = order[row.rank - 1]
                assert row.token == asked.texts([int(token)])[0]
            assert logits[token] == pytest.approx(said, abs=2e-3)
    assert len(says) > 0
    assert len(says) % 5 == 0


def by_transformers(asked: LanguageModel, vector: np.ndarray) -> np.ndarray:
    """Return final norm and unembedding as the model of transformers has them."""
    inner = asked.model.original_model
    config = inner.config
    v = vector.astype(np.float64)
    if config.model_type == "gpt2":
        norm = inner.transformer.ln_f
        v = (v - v.mean()) / np.sqrt(v.var() + config.layer_norm_epsilon)
        v = v * _numbers(norm.weight) + _numbers(norm.bias)
    else:
        norm = inner.model.norm
        v = v / np.sqrt((v**2).mean() + config.rms_norm_eps) * _numbers(norm.weight)
    return _numbers(inner.lm_head.weight) @ v


def _numbers(weight: object) -> np.ndarray:
    inner = getattr(weight, "original_component", weight)
    return inner.detach().double().numpy()  # type: ignore[attr-defined]


def test_participation_ratio() -> None:
    orthogonal = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    assert float(participation_ratio(orthogonal)) == pytest.approx(6.0)
    assert float(participation_ratio(orthogonal[:, :2])) == pytest.approx(2.0)
    assert float(participation_ratio(orthogonal[:3])) == pytest.approx(3.0)
    assert torch.isnan(participation_ratio(torch.zeros(2, 3)))
