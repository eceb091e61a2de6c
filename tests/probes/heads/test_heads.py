"""The table of heads: known heads are found, random ones are not; an interruption saves it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hand_built_heads import known_heads, sentences
from random_texts import said
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main
from latentcode.errors import ConfigError, ProbeError, RunError
from latentcode.models.pretrained import untrained
from latentcode.probes.common.results import load_result
from latentcode.probes.heads import HeadsResult, measure, metrics
from latentcode.probes.heads.metrics import OBSERVED, Observer
from latentcode.prompts import PretrainedLanguageModel, load_language_model
from latentcode.subjects.streams import stream_texts

TEXTS = sentences(40)


def value(result: HeadsResult, metric: str, layer: int, head: int) -> float:
    return float(result.matrix(metric).to_numpy()[layer, head])


@pytest.fixture(scope="module")
def known() -> HeadsResult:
    return lc.heads(known_heads(), TEXTS, n_bootstrap=200)


def test_heads_with_known_patterns_score_one(known: HeadsResult) -> None:
    for metric, layer, head in (("previous_token", 0, 0), ("induction", 1, 0),
                                ("duplicate_token", 1, 1)):
        assert value(known, metric, layer, head) == pytest.approx(1.0, abs=1e-3)
        others = known.matrix(metric).to_numpy().ravel()
        assert (np.sort(others)[:-1] < 0.7).all()
    assert value(known, "distance", 0, 0) == pytest.approx(1.0, abs=1e-3)
    assert value(known, "entropy", 0, 0) == pytest.approx(0.0, abs=1e-3)
    assert value(known, "normalized_entropy", 0, 1) == pytest.approx(1.0, abs=1e-5)
    assert value(known, "direct_logit_attribution", 1, 0) != pytest.approx(0.0, abs=1e-3)


def test_they_are_above_heads_that_learned_nothing(known: HeadsResult) -> None:
    marked = known.marked().set_index(["metric", "layer", "head"])["outside"]
    for place in (("previous_token", 0, 0), ("induction", 1, 0), ("duplicate_token", 1, 1)):
        assert marked[place] == 1
    # Attending to all alike is what heads with small random weights do.
    assert marked["previous_token", 0, 1] == 0
    told = {line.split(":")[0] for line in known.said()}
    assert {"previous token", "induction", "duplicate token"} <= told
    assert "L1H0 1.00" in next(line for line in known.said() if line.startswith("induction"))


def test_the_interval_of_the_control_is_that_of_fresh_heads(small_models: SmallModels) -> None:
    asked = load_language_model(small_models("gpt2"))
    options: dict[str, Any] = {"n_bootstrap": 100, "effects": []}
    result = lc.heads(asked, said(8), seed=5, **options)
    fresh = [lc.heads(PretrainedLanguageModel(untrained(asked.model, seed=5 + i)), said(8),
                      controls=False, **options).matrix("entropy").to_numpy().ravel()
             for i in range(5)]
    first = result.heads[result.heads["metric"] == "entropy"].iloc[0]
    pool = np.concatenate(fresh)
    assert result.settings["n_untrained"] == len(fresh)
    assert first["control"] == pytest.approx(pool.mean())
    assert first["control_low"] == pytest.approx(np.quantile(pool, 0.025, method="weibull"))
    assert first["control_high"] == pytest.approx(np.quantile(pool, 0.975, method="weibull"))


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_streams_and_batches_change_nothing(
    architecture: str, small_models: SmallModels, tmp_path: Path
) -> None:
    """Means over texts equal those of passes of one text each, without padding or batches."""
    asked, texts = load_language_model(small_models(architecture)), said(15)
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    options: dict[str, Any] = {"n_bootstrap": 100, "controls": False, "effects": []}
    whole = lc.heads(asked, texts, **options)
    streamed = lc.heads(asked, tmp_path / "texts.txt", tokens_at_once=20, **options)
    columns = ["value", "low", "high", "n"]
    np.testing.assert_allclose(streamed.heads[columns], whole.heads[columns], rtol=2e-4, atol=2e-6)
    observer = Observer(asked.model)
    each = [observer.observe(batch) for text in texts
            for batch in stream_texts(asked, [text]).batches()]
    sums, n = (np.sum([one[i][0].double().numpy() for one in each], axis=0) for i in (0, 1))
    for m, metric in enumerate(OBSERVED):
        np.testing.assert_allclose(whole.matrix(metric), (sums / n)[..., m], rtol=2e-4, atol=2e-6)


def test_intervals_resample_texts(known: HeadsResult) -> None:
    """The spread of a mean over texts is that of the texts, not that of their tokens."""
    asked = known_heads()
    options: dict[str, Any] = {"n_bootstrap": 400, "controls": False, "effects": []}
    more, once = (lc.heads(asked, texts, **options) for texts in (sentences(80), TEXTS))
    width = [float((result.heads["high"] - result.heads["low"]).mean()) for result in (once, more)]
    assert width[1] < 0.85 * width[0]
    one = lc.heads(asked, TEXTS[:1], **options)
    assert one.heads[["low", "high"]].isna().all(axis=None)
    assert any("single text" in note for note in one.caveats)


def test_more_texts_than_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = known_heads()
    whole = lc.heads(asked, TEXTS, n_bootstrap=100, controls=False, effects=[])
    monkeypatch.setattr(metrics, "GROUPS", 8)
    grouped = lc.heads(asked, TEXTS, n_bootstrap=100, controls=False, effects=[])
    np.testing.assert_allclose(grouped.heads["value"], whole.heads["value"], rtol=1e-10)
    assert grouped.settings["n_texts"] == len(TEXTS)


FEW: dict[str, Any] = {"n_bootstrap": 100, "tokens_at_once": 4, "n_ablated": 6, "n_read": 2}


@pytest.fixture(scope="module")
def uninterrupted(small_models: SmallModels) -> HeadsResult:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measure, "FRESH_HEADS", 16)
        return lc.heads(load_language_model(small_models("gpt2")), said(20), **FEW)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["model", "untrained-1", "effects"])
def test_what_was_measured_before_an_interruption_is_saved(
    stage: str, small_models: SmallModels, uninterrupted: HeadsResult, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "FRESH_HEADS", 16)
    asked, texts, whole = load_language_model(small_models("gpt2")), said(20), uninterrupted
    stages = ["model", *(f"untrained-{i}" for i in range(whole.settings["n_untrained"])), "effects"]
    doing: list[str] = []
    monkeypatch.setattr(measure, "say_doing", lambda progress, text, unit: doing.append(text))

    def interrupt(done: int, total: int) -> None:
        in_stage = doing.count(stage) > 1 if stage != "effects" else (
            doing[-1] in ("ablation: 4 of 8 heads", "ablation: 5 of 8 heads"))
        if in_stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        lc.heads(asked, texts, out=tmp_path / "result", progress=interrupt, **FEW)
    assert raised.value.__notes__ == [f"what was measured is saved in {tmp_path}/result.partial"]
    assert not (tmp_path / "result").exists()
    partial = load_result(tmp_path / "result.partial")
    assert isinstance(partial, HeadsResult)
    unfinished = stages[stages.index(stage):]
    assert partial.settings["partial"] == unfinished
    assert partial.caveats[0].endswith(f"not finished: {', '.join(unfinished)}.")
    if stage == "model":  # the texts so far, without controls
        assert 0 < partial.settings["n_texts"] < 20
        assert (partial.heads["n"] <= whole.heads["n"]).all()
        assert partial.missing_controls == ("untrained",)
        first = lc.heads(asked, texts, n=partial.settings["n_texts"], controls=False, effects=[],
                         **FEW)
        pd.testing.assert_frame_equal(partial.heads, first.heads)
    else:
        columns = ["layer", "head", "metric", "value", "low", "high", "n"]
        pd.testing.assert_frame_equal(partial.heads[columns], whole.heads[columns])
    assert partial.settings["n_untrained"] == max(stages.index(stage) - 1, 0)
    n = partial.effects["n"].max() if stage == "effects" else 0
    assert (0 < n < whole.effects["n"].max()) if stage == "effects" else partial.effects.empty
    assert partial.summary().shape[0] > 0
    if stage == "model":  # the same call again, where an interrupted one has been
        result = lc.heads(asked, texts, out=tmp_path / "result", **FEW)
        pd.testing.assert_frame_equal(result.heads, whole.heads)
        with pytest.raises(RunError, match="exists already"):
            lc.heads(asked, texts, out=tmp_path / "result", **FEW)


def test_effects_below_their_control_are_said(known: HeadsResult) -> None:
    table = known.effects.copy()
    first = table["quantity"] == table["quantity"].iloc[0]
    n = int(first.sum())
    table[["difference_low", "difference_high"]] = [-2.0, -1.0]
    sentences = replace(known, effects=table).said()
    assert f"0 of {n} heads surely above their control and {n} below" in sentences[0]
    assert " and " not in replace(
        known, effects=table.assign(difference_low=-1.0, difference_high=1.0)).said()[0]


def test_without_controls_it_says_so() -> None:
    result = lc.heads(known_heads(), TEXTS, controls=False, effects=[], n_bootstrap=100)
    assert result.heads["control"].isna().all()
    assert result.contrasts.empty
    assert "Without controls: untrained." in result.caveats
    assert "untrained" not in result.summary()
    assert result.figure().axes


def test_prompts_with_answers(small_models: SmallModels) -> None:
    prompts = pd.DataFrame({"prompt": said(12), "answer": " Paris"})
    options: dict[str, Any] = {"n_bootstrap": 100, "controls": False, "effects": []}
    result = lc.heads(small_models("gpt2"), prompts, **options)
    n = result.heads.groupby("metric")["n"].first()
    assert n["direct_logit_attribution"] == 12
    assert n["previous_token"] > 30
    without = lc.heads(small_models("gpt2"), prompts[["prompt"]], **options)
    assert without.matrix("direct_logit_attribution").isna().all(axis=None)


def test_what_looks_ahead_or_is_not_finite_is_refused(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = known_heads()
    with monkeypatch.context() as patched:
        patched.setattr(metrics, "looks_ahead", lambda pattern: pattern.sum())
        with pytest.raises(ConfigError, match="layer 0, 1 lets tokens attend to later ones"):
            lc.heads(model, TEXTS)
    model.model.blocks[1].attn.W_Q.data[0, 0, 0] = float("nan")
    with pytest.raises(ConfigError, match="layer 1 gives codes that are NaN"):
        lc.heads(model, TEXTS)


def test_memory_that_does_not_suffice_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(observer: Observer, batch: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    asked = known_heads()
    with monkeypatch.context() as patched:
        patched.setattr(Observer, "observe", fail)
        with pytest.raises(ProbeError, match=r"memory does not suffice .* tokens_at_once=\d+"):
            lc.heads(asked, TEXTS, tokens_at_once=200)
    # Before it is used, where it is known: of the untrained model.
    monkeypatch.setattr(measure, "available_memory", lambda device: 2**10)
    with pytest.raises(ProbeError, match=r"for the untrained model .* expected controls=False"):
        lc.heads(asked, TEXTS)


@pytest.mark.slow
def test_the_command(
    small_models: SmallModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(json.dumps({"text": text}) for text in said(12)), encoding="utf-8")
    out = tmp_path / "result"
    main(["heads", str(small_models("gpt2")), "--texts", str(tmp_path / "texts.jsonl"),
          "--longest", "6", "--n", "10", "--n-bootstrap", "100", "--out", str(out)])
    printed = capsys.readouterr().out
    assert f"wrote result {out}" in printed
    result = load_result(out)
    assert isinstance(result, HeadsResult)
    assert result.settings["n_texts"] == 10
    assert result.settings["longest"] == 6
    assert (out / "figure.png").stat().st_size > 1_000
    main(["show", str(out)])
    assert capsys.readouterr().out.strip() in printed
