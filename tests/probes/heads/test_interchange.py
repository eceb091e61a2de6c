"""What a head puts out, and its codes, from a source: as the engine of patches says, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from prompt_pairs import pairs_of
from small_language_models import SmallModels

import latentcode as lc
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.pretrained import load_pretrained
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.statistics import LEAST_CLUSTERS
from latentcode.probes.heads.ablate import interchange, writes_of_codes
from latentcode.prompts import as_language_model
from latentcode.tasks.counterfactuals import control_source

FEW: dict[str, Any] = {"n_bootstrap": 100, "split": "ood"}


@pytest.fixture(scope="module", params=["gpt2", "llama", "gptj", "lfm2"])
def model(request: pytest.FixtureRequest, small_models: SmallModels) -> Any:
    return load_pretrained(small_models(request.param))


@pytest.fixture(scope="module")
def pairs(model: Any) -> pd.DataFrame:
    found = pd.DataFrame(pairs_of(model, ("The capital of {}",))[:8])
    return found.assign(combination=range(len(found)))


@pytest.fixture(scope="module")
def task(model: Any, pairs: pd.DataFrame) -> Any:
    return lc.subject(model, pairs).counterfactuals(among="answers")


def test_codes_bring_what_patches_of_single_heads_bring(
    model: Any, pairs: pd.DataFrame, task: Any
) -> None:
    asked = as_language_model(model)
    table, settings = interchange(asked, task, **FEW)
    assert settings["passes"] == "layers below shared"
    layers = sorted(set(table["layer"]))
    head = {"layer": layers[-1], "head": 2}
    patch = lc.Patch("interchange", "everything", head["layer"], heads=(2,))
    result = lc.intervene(model, pairs, patch, among="answers", n=len(pairs), n_bootstrap=100)
    expected = result.table.set_index("metric")["value"]
    found = table[(table["patch"] == "code") & (table["layer"] == head["layer"])
                  & (table["head"] == 2)].set_index("quantity")["value"]
    assert found["flip"] == pytest.approx(expected["flip"])
    assert settings["n_known"] == len(pairs)
    few, _ = interchange(asked, task, heads=[(layers[-1], 2)], **FEW)
    alone = table[(table["layer"] == layers[-1]) & (table["head"] == 2)].reset_index(drop=True)
    pd.testing.assert_frame_equal(few, alone, rtol=1e-4, atol=1e-6)
    clean = expected["logit_difference_clean"]
    source = _difference(model, pairs, "source")
    assert found["moved"] == pytest.approx(
        (clean - expected["logit_difference"]) / (clean - source), abs=1e-4)


def test_z_brings_what_a_hook_brings(model: Any, pairs: pd.DataFrame, task: Any) -> None:
    table, _ = interchange(as_language_model(model), task, sites=("z",), **FEW)
    layer, head = int(table["layer"].max()), 1
    clean, source = (_difference(model, pairs, of) for of in ("prompt", "source"))
    patched = _difference(model, pairs, "prompt", layer, head)
    row = table[(table["layer"] == layer) & (table["head"] == head)].set_index("quantity")
    assert row["value"]["moved"] == pytest.approx((clean - patched) / (clean - source), abs=1e-4)
    assert set(table["against"]) == {"another's source"}
    assert np.allclose(table["value"] - table["control"], table["difference"])
    few = table["n_clusters"] < LEAST_CLUSTERS
    assert (table["difference_low"].isna() == few).all()
    assert (few | (table["difference_low"] <= table["difference"])).all()


def test_the_control_is_the_source_with_the_same_answer_where_there_is_one(
    small_models: SmallModels
) -> None:
    model = load_pretrained(small_models("gpt2"))
    pairs = pd.DataFrame(pairs_of(model, ("The capital of {}",))[:6])
    # As control the source itself, from which nothing differs.
    task = lc.subject(model, pairs.assign(control=pairs["source"])).counterfactuals(
        among="answers")
    table, _ = interchange(as_language_model(model), task, sites=("z",), **FEW)
    assert set(table["against"]) == {"same answer"}
    assert (table["difference"] == 0).all()
    assert (table["control"] == table["value"]).all()


def test_the_source_of_another_pair_has_another_answer(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))
    pairs = pd.DataFrame(pairs_of(model, ("The capital of {}",))[:6])
    answers = [7, 7, 7, 8, 7, 9]
    task = lc.subject(model, pairs.assign(source_answer=answers)).counterfactuals()
    batch, = task.batches("ood", 6, 6, torch.Generator())
    name, control, there = control_source(task, batch)
    assert name == "another's source"
    assert there.all()
    assert control.targets[:, 0].tolist() == [9, 9, 9, 7, 8, 7]
    alone = lc.subject(model, pairs.assign(source_answer=7)).counterfactuals()
    batch, = alone.batches("ood", 6, 6, torch.Generator())
    assert not control_source(alone, batch)[2].any()


def test_pairs_whose_sources_all_have_one_answer_have_no_control(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_pretrained(small_models("gpt2"))
    pairs = pd.DataFrame(pairs_of(model, ("The capital of {}",))[:6])
    task = lc.subject(model, pairs).counterfactuals(among="answers")
    task.answers[:, 1] = task.answers[0, 1]
    monkeypatch.setattr(task, "right", lambda pairs, logits, of: torch.ones(
        len(pairs), dtype=torch.bool))
    table, _ = interchange(as_language_model(model), task, sites=("z",), **FEW)
    assert table[["control", "difference", "against"]].isna().all(axis=None)
    assert table["value"].notna().all()


def test_codes_of_one_head_change_z_of_all_in_hyla() -> None:
    config = ModelConfig(
        d_input=20, d_output=20, n_layers=2, d_model=16, n_heads=3, d_head=2, d_head_v=2, d_mlp=16,
        embedding="token", causal=True, positions="rotary", attention_dropout=0.0)
    model = HookedTransformer(with_kind(config, "hyla"))
    tokens = torch.arange(10).view(2, 5)
    pattern = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)).tril()
    writes = writes_of_codes(model, tokens, 1, pattern)
    assert [write.heads for write in writes] == [(0, 1, 2)] * 3
    linear = HookedTransformer(with_kind(config, "softmax"))
    writes = writes_of_codes(linear, tokens, 1, pattern)
    values: list[torch.Tensor] = []
    with torch.no_grad():
        linear.run_with_hooks(tokens, fwd_hooks=[(
            "blocks.1.attn.hook_v", lambda v, hook: values.append(v))])
    expected = torch.einsum("bhqk,bkhd->bqhd", pattern, values[0])
    for head, write in enumerate(writes):
        assert write.heads == (head,)
        assert write.z is not None
        assert torch.allclose(write.z[:, :, 0], expected[:, :, head], atol=1e-5)


def _difference(
    model: Any, pairs: pd.DataFrame, of: str, layer: int | None = None, head: int = 0
) -> float:
    """Return the mean logit of the answer minus that of the source's, z of a head the source's."""
    found = []
    name = f"blocks.{layer}.attn.hook_z"
    for row in pairs.to_dict("records"):
        tokens = model.to_tokens(row[of])
        hooks: list[Any] = []
        with torch.no_grad():
            if layer is not None:
                z: list[torch.Tensor] = []
                model.run_with_hooks(model.to_tokens(row["source"]), fwd_hooks=[
                    (name, lambda seen, hook, z=z: z.append(seen.clone()))])

                def put(own: torch.Tensor, hook: object, z: list[Any] = z) -> torch.Tensor:
                    own[:, :, head] = z[0][:, :, head]
                    return own

                hooks = [(name, put)]
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[0, -1]
        found.append(float(logits[row["answer"]] - logits[row["source_answer"]]))
    return float(np.mean(found))
