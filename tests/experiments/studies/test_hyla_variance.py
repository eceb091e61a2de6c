"""Variances and gradient norms, against the definitions and at smoke size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from initial_weights import OTHER_WEIGHTS
from places import ROOT

from latentcode.config.presets import preset
from latentcode.errors import ConfigError, RunError
from latentcode.experiments.studies import hyla_variance, result_kinds
from latentcode.experiments.studies.hyla_variance import (
    HylaVarianceResult,
    findings,
    gradient_norms,
    initial_variances,
    main,
    measure,
)
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.saved import load_result
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
    monkeypatch.setattr(hyla_variance, "WINDOW", 1)
    config = preset("smoke", "logic", "hyla")
    config = replace(config, model=replace(config.model, attention_dropout=0.0))
    rows = list(gradient_norms(config, 1))
    model = HookedTransformer(config.model, seed=0)
    task = make_task(config.task)
    batch = TrainingBatches(task, 0, config.training.batch_size, torch.device("cpu"))[0]
    loss = task.loss(model(batch.inputs), batch)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    def norm(*words: str) -> float:
        return float(torch.stack([g.norm() for name, g in gradients.items()
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
def result() -> HylaVarianceResult:
    return measure(kinds=COMPARED, preset_name="smoke", variance_seeds=2, seeds=1, steps=20)


def test_a_result_says_what_its_numbers_say(result: HylaVarianceResult, tmp_path: Path) -> None:
    assert set(result.variance["kind"]) == set(COMPARED)
    assert set(result.variance["task"]) == {"logic", "sraven"}
    assert len(result.gradients) == len(COMPARED) * 7
    assert list(result.caveats) == result.settings["findings"]
    assert "hyla_softmax" in " ".join(result.caveats)
    loaded = HylaVarianceResult.load(result.save(tmp_path / "result"))
    pd.testing.assert_frame_equal(loaded.variance, result.variance)
    assert set(loaded.gradients["layer"]) == {"all", "0", "1"}
    assert loaded.caveats == result.caveats


def test_findings_follow_the_tables(result: HylaVarianceResult) -> None:
    gradients = result.gradients.copy()
    weak = ((gradients["kind"] == "hyla_softmax") & (gradients["layer"] == "0")
            & (gradients["part"] == "value"))
    reference = gradients[(gradients["kind"] == "hyla") & (gradients["layer"] == "0")
                          & (gradients["part"] == "value")]
    gradients.loc[weak, "mean"] = 1e-6 * reference["mean"].to_numpy()
    sentence = next(s for s in findings(result.variance, gradients) if "of hyla_softmax over" in s)
    assert "values and outputs of layer 0, with 1e-06 of hyla's" in sentence
    variance = result.variance.copy()
    softmax = variance["kind"] == "softmax"
    variance.loc[softmax, "ratio"] = np.where(np.arange(softmax.sum()) % 2, 0.25, 0.5)
    assert "0.25 to 0.5 times" in " ".join(findings(variance, gradients))


def test_the_stored_result_opens_and_says_what_its_tables_say() -> None:
    folder = ROOT / "experiments/results/hyla_variance"
    stored = load_result(folder, result_kinds)
    assert isinstance(stored, HylaVarianceResult)
    assert stored.settings["findings"] == list(findings(stored.variance, stored.gradients))
    assert f"over {stored.settings['steps']} updates" in " ".join(stored.caveats)


def test_unusable_sizes_are_named(tmp_path: Path) -> None:
    for wrong, message in (({"steps": 30}, "steps is 30; expected a multiple of 20"),
                           ({"seeds": 0}, "seeds is 0"), ({"kinds": ("softmax",)}, "kinds lack"),
                           ({"kinds": ("hylla",)}, "unknown attention kind 'hylla'")):
        with pytest.raises(ConfigError, match=message):
            measure(preset_name="smoke", **wrong)
    (tmp_path / "mine").write_text("")
    with pytest.raises(RunError, match="exists already"):
        main(tmp_path, preset_name="smoke")
