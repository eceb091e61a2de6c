"""Variances and gradient norms, against the definitions and at smoke size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from initial_weights import OTHER_WEIGHTS

from latentcode.config.presets import preset
from latentcode.errors import ConfigError
from latentcode.experiments.studies.hyla_variance import measuring
from latentcode.experiments.studies.hyla_variance.figure import figures
from latentcode.experiments.studies.hyla_variance.measuring import (
    ATTENTIONS,
    gradient_norms,
    gradients,
    initial_variances,
    kinds_of,
    norms,
    variances,
)
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.results import where
from latentcode.tasks import make_task
from latentcode.training.batches import TrainingBatches

COMPARED = ("softmax", "linear", "hyla", "linear_rms_head", "hyla_no_rms_head", "hyla_softmax",
            "hyla_softmax_rms_head")


def test_rms_head_fixes_the_squared_code_and_the_variance_of_the_second_layer() -> None:
    found: dict[str, dict[tuple[int, str], torch.Tensor]] = {}
    for kind in ("hyla", "hyla_no_rms_head"):
        found[kind] = {}
        for layer, quantity, values, target in initial_variances(preset("small", "logic", kind), 0):
            found[kind][layer, quantity] = values / target
    for layer in (0, 1):
        fixed, free = (found[kind][layer, "squared_code"] for kind in found)
        assert fixed.mean() == pytest.approx(1.0, abs=1e-3)
        assert fixed.std() < 1e-2 < free.std()
        assert found["hyla"][layer, "weights_2"].mean() == pytest.approx(
            1.0, abs=0.25 if OTHER_WEIGHTS else 0.15)
        # fan_in = d_model is the first layer's, but n_heads matrices of variance 1 / d_model add up
        assert found["hyla"][layer, "weights_1"].mean() == pytest.approx(8.0, rel=0.15)


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_every_kind_has_the_layers_that_its_codes_generate(kind: str) -> None:
    names = {quantity for _, quantity, _, _ in initial_variances(preset("smoke", "logic", kind), 0)}
    network = ATTENTION_KINDS[kind]["value_network"]
    weights = {"linear": {"weights_1"}, "hyla": {"weights_1", "weights_2"},
               "hyla_linear": {"weights_1"}, "deep": {"weights_1", "weights_2", "weights_3"}}
    expected = weights[network]
    if kind == "linear_rms_head_relu":
        expected = {"weights_2"}
    if network == "hyla_linear":
        expected = {"weights_1", "weights_2"}
    assert names == {"squared_code", "output", *expected}


def test_norms_are_those_of_the_gradients_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "WINDOW", 1)
    config = preset("smoke", "logic", "hyla")
    config = replace(config, model=replace(config.model, attention_dropout=0.0))
    rows = list(gradient_norms(config, 1))
    model = HookedTransformer(config.model, seed=0)
    task = make_task(config.task)
    batch = TrainingBatches(task, 0, config.training.batch_size, torch.device("cpu"))[0]
    loss = task.loss(model(batch.inputs), batch)
    loss.backward()
    own = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    def norm(*words: str) -> float:
        return float(torch.stack([g.norm() for name, g in own.items()
                                  if any(w in name for w in words)]).norm())

    found = {(row["layer"], row["part"]): row for row in rows}
    assert found["all", "all"]["mean"] == pytest.approx(norm(""), rel=1e-4)
    assert found["1", "block"]["mean"] == pytest.approx(norm("blocks.1."), rel=1e-4)
    assert found["0", "code"]["mean"] == pytest.approx(norm(
        "blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.b_Q", "blocks.0.attn.b_K",
        "blocks.0.attn.rel_pos_bias"), rel=1e-4)
    assert found["0", "value"]["mean"] == pytest.approx(norm(
        "blocks.0.attn.W_V", "blocks.0.attn.W_O", "blocks.0.attn.b_V", "blocks.0.attn.b_O"),
        rel=1e-4)
    assert found["all", "all"]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert len(found) == 7
    clipped = replace(config, training=replace(config.training, grad_clip=1.0))
    with pytest.raises(ConfigError, match=r"grad_clip is 1\.0; expected None"):
        next(gradient_norms(clipped, 1))


@pytest.fixture(scope="module")
def measured() -> dict[str, pd.DataFrame]:
    return {**variances(Path(), size="smoke", seeds=2, kinds=ATTENTIONS),
            **gradients(Path(), size="smoke", seeds=1, steps=20, kinds=COMPARED)}


def test_tables_have_every_kind(measured: dict[str, pd.DataFrame]) -> None:
    assert set(measured["variance"]["kind"]) == set(ATTENTIONS)
    assert set(measured["variance"]["task"]) == {"logic", "sraven"}
    assert len(measured["gradients"]) == len(COMPARED) * 7
    assert set(measured["gradients"]["layer"]) == {"all", "0", "1"}
    found = kinds_of(**measured).set_index("kind")
    assert set(found.index) == set(COMPARED)
    whole = where(measured["gradients"], kind="hyla", part="all")
    assert found.loc["hyla", "largest_norm"] == whole["largest"].max()
    ratios = where(measured["variance"], kind="hyla", quantity="weights_1")["ratio"]
    assert found.loc["hyla", "weights_1"] == pytest.approx(np.exp(np.log(ratios).mean()))
    (drawn,) = figures(measured).values()
    assert len(drawn.axes) == 2 + 3


def test_norms_are_medians_over_updates_of_geometric_means_over_seeds() -> None:
    rows = [{"kind": kind, "layer": "0", "part": "code", "seed": seed, "step": step,
             "mean": scale * 10.0 ** (seed * exponent)}
            for kind, scale in (("hyla", 1.0), ("softmax", 0.5)) for seed in (0, 1)
            for step, exponent in ((20, 2), (40, 4), (60, 8))]
    (found,) = norms(pd.DataFrame(rows)).to_dict("records")
    assert found == pytest.approx({"layer": "0", "part": "code", "hyla": 100.0, "softmax": 50.0})


def test_unusable_sizes_are_named() -> None:
    with pytest.raises(ConfigError, match="steps is 30; expected a multiple of 20"):
        gradients(Path(), size="smoke", seeds=1, steps=30)
    for function, more in ((variances, {}), (gradients, {"steps": 20})):
        with pytest.raises(ConfigError, match="seeds is 0"):
            function(Path(), size="smoke", seeds=0, **more)
