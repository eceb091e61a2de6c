"""Prompts ask the language models that are trained here as they ask pretrained ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_language_models import SmallModels
from small_text import CONFIG, small_text

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import (
    OwnLanguageModel,
    PretrainedLanguageModel,
    Prompts,
    load_language_model,
)
from latentcode.tasks.text.tokens import PATTERNS

KINDS = ("text-softmax", "text-hyla", "text-linear")
PAIRS = tuple(PATTERNS)
BOTH = (0, 1)
N = 20


@pytest.fixture(scope="module", params=KINDS)
def any_kind(request: pytest.FixtureRequest) -> OwnLanguageModel:
    return load_language_model(request.param)


@pytest.fixture(scope="module")
def softmax() -> OwnLanguageModel:
    return OwnLanguageModel.of_run(lc.load_run("text-softmax"))


def as_prompts_of(model: OwnLanguageModel, n: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Return numbers of instances of the run, and each up to its query as a prompt."""
    run = lc.load_run(model.settings["run"])
    task, batch = lc.make_task(run.config.task), lc.instances(run, n=n)
    query, key = task.positions(PAIRS, batch)
    kept, rows = [], []
    for i in range(n):
        ids = batch.inputs[i, :query[i, 0] + 1].tolist()
        text = model.tokenizer.decode(ids)
        if model.tokenizer.locate(text)[0] == ids:  # not so where a document ends in it
            kept.append(i)
            rows.append({"prompt": text, "pairs": {
                name: (int(query[i, p]), int(key[i, p])) for p, name in enumerate(PAIRS)}})
    assert len(kept) > n // 4
    return np.array(kept), pd.DataFrame(rows)


def test_codes_of_prompts_are_those_of_the_same_tokens(any_kind: OwnLanguageModel) -> None:
    kept, frame = as_prompts_of(any_kind, N)
    run = lc.load_run(any_kind.settings["run"])
    expected = lc.extract(run, n=N, pairs=PAIRS, residuals=True)
    codes = lc.extract(lc.subject(any_kind, frame, prepend_bos=False), residuals=True)
    assert len({len(ids) for ids in Prompts.from_frame(frame).tokenize(any_kind, False).ids}) > 3
    np.testing.assert_allclose(codes.scores, expected.scores[kept], atol=2e-5, rtol=1e-3)
    for layer in BOTH:
        np.testing.assert_allclose(
            codes.select_residual(layer=layer, pair=PAIRS[0]),
            expected.select_residual(layer=layer, pair=PAIRS[0])[kept], atol=1e-4)
    assert np.abs(codes.scores).max() > 0.1
    for column in ("query_token", "key_token"):
        assert codes.labels[f"{column}_0"].tolist() == expected.labels[column].iloc[kept].tolist()
    # What it says comes next is what it says at the query, whatever follows in the excerpt.
    batch = lc.instances(run, n=N)
    with torch.no_grad():
        said = any_kind.model(batch.inputs).argmax(-1)[torch.arange(N), batch.info["query"]][kept]
    assert codes.labels["next_token"].tolist() == any_kind.texts(said.tolist())
    assert {name: codes.meta[name] for name in ("run", "run_id", "step", "architecture",
                                                "prepend_bos", "kind")} == {
        "run": run.name, "run_id": run.id, "step": run.checkpoints()[-1],
        "architecture": "HookedTransformer", "prepend_bos": False,
        "kind": run.name.removeprefix("text-")}


def test_prompts_begin_where_a_document_ended(softmax: OwnLanguageModel) -> None:
    text = "jagur gokes lihin"
    prompts = Prompts.from_frame(pd.DataFrame([{"prompt": text, "query": -1, "key": "jagur"}]))
    bare, ids = (prompts.tokenize(softmax, begun) for begun in (False, None))
    assert ids.ids[0] == [softmax.tokenizer.end, *bare.ids[0]]
    assert ids.ids[0] == prompts.tokenize(softmax, True).ids[0]
    assert (ids.key - bare.key).tolist() == [[1]]
    by_default, without = (lc.extract(lc.subject(softmax, prompts, prepend_bos=begun))
                           for begun in (None, False))
    assert (by_default.meta["prepend_bos"], without.meta["prepend_bos"]) == (True, False)
    assert np.abs(by_default.scores - without.scores).max() > 1e-3
    # In a document, the text of that token is text.
    said, spans = softmax.encode(f"{text}{softmax.tokenizer.end_token}")
    assert said.count(softmax.tokenizer.end) == 1
    assert spans[-1][1] == len(text) + len(softmax.tokenizer.end_token)


def test_a_model_in_hand_needs_its_tokenizer() -> None:
    config = lc.preset("smoke", "language", "softmax").model
    task = small_text(replace(CONFIG, n_tokens=24))
    model = HookedTransformer(replace(
        config, d_input=CONFIG.n_vocabulary, d_output=CONFIG.n_vocabulary), seed=3)
    asked = OwnLanguageModel(model, task.data.tokenizer)
    prompts = pd.DataFrame([{"prompt": " kaba loda kaba", "query": -1, "key": " loda"}])
    codes = lc.extract(asked, prompts)
    with torch.no_grad():
        _, cache = model.eval().run_with_cache(torch.tensor([asked.encode(" kaba loda kaba")[0]]))
    np.testing.assert_allclose(
        codes.scores[0, :, 0], [cache["pattern", layer][0, :, 3, 2] for layer in BOTH], atol=1e-6)
    assert (codes.meta["run"], codes.meta["kind"]) == ("softmax", "softmax")
    with pytest.raises(ConfigError, match=r"row 0 .* has 4 tokens; expected at most 3, the conte"):
        lc.extract(OwnLanguageModel(model, task.data.tokenizer, context=3), prompts)
    # An untrained model may say ids that its tokenizer does not use: they have no text.
    assert asked.texts([CONFIG.n_vocabulary - 1]) == [f"<id {CONFIG.n_vocabulary - 1}>"]


@pytest.mark.parametrize(("fields", "message"), [
    ({"causal": False}, r"causal False and .*; expected a language model: 'token', True"),
    ({"embedding": "dense", "readout": "dense"}, "the model has embedding 'dense'"),
    ({"d_input": 20, "d_output": 20}, "tokenizer has 70 tokens; expected at most model.d_input ="),
])
def test_what_is_no_language_model_is_named(fields: dict[str, Any], message: str) -> None:
    config = replace(lc.preset("smoke", "language", "softmax").model, d_input=80, d_output=80)
    tokenizer = small_text().data.tokenizer
    assert tokenizer.n_tokens == 70
    with pytest.raises(ConfigError, match=message):
        OwnLanguageModel(HookedTransformer(replace(config, **fields)), tokenizer)


def test_names_folders_and_models_are_told_apart(small_models: SmallModels) -> None:
    run = lc.load_run("text-softmax")
    expected = run.load_model().state_dict()
    for given in ("text-softmax", "zoo:text-softmax", run.path, str(run.path), run):
        model = load_language_model(given)
        assert all(torch.equal(weight, expected[name])
                   for name, weight in model.model.state_dict().items())
        assert model.context == run.config.task.n_tokens
        assert load_language_model(model) is model
    bridge = load_language_model(small_models("gpt2"))
    assert isinstance(bridge, PretrainedLanguageModel)
    assert load_language_model(bridge.model).model is bridge.model
    assert load_language_model(run, dtype=torch.float64).model.W_E.dtype == torch.float64
    with pytest.raises(ConfigError, match="run 'logic-softmax' was trained on task 'logic', whose"):
        load_language_model("logic-softmax")
    with pytest.raises(ConfigError, match="step is 3, but the model is no run; expected None"):
        load_language_model(small_models("gpt2"), step=3)


def test_the_control_has_the_initial_weights_of_the_run(softmax: OwnLanguageModel) -> None:
    run = lc.load_run("text-softmax")
    initial = HookedTransformer(run.config.model, seed=run.config.training.seed).state_dict()
    for fresh in (softmax.untrained(), softmax.untrained(7),
                  load_language_model(run, untrained=True, seed=7),
                  load_language_model(softmax, untrained=True)):
        assert all(torch.equal(weight, initial[name])
                   for name, weight in fresh.model.state_dict().items())
        assert (fresh.settings["step"], fresh.settings["run_id"]) == (0, run.id)
    _, frame = as_prompts_of(softmax, 12)
    trained, control = (lc.extract(model, frame)
                        for model in (softmax, softmax.untrained()))
    assert np.abs(trained.scores - control.scores).max() > 0.1
    # Of a model whose seed is not known they are drawn.
    unknown = OwnLanguageModel(softmax.model, softmax.tokenizer)
    assert torch.equal(unknown.untrained(4).model.W_E, unknown.untrained(4).model.W_E)
    assert not torch.equal(unknown.untrained(4).model.W_E, unknown.untrained(5).model.W_E)


def minimal_pairs(model: OwnLanguageModel) -> pd.DataFrame:
    """Return prompts with another word at both ends, whose answers are what the model says."""
    words = ("jagur", "gokes", "lihin", "kebek")
    ids = {word: model.encode(f"{word} babek hudal {word}")[0] for word in words}
    with torch.no_grad():
        said = {word: int(model.model(torch.tensor([row]))[0, -1].argmax())
                for word, row in ids.items()}
    rows = [{"prompt": f"{one} babek hudal {one}", "source": f"{other} babek hudal {other}",
             "answer": said[one], "source_answer": said[other], "query": -1, "key": "babek",
             "label": one, "source_label": other}
            for one in words for other in words
            if said[one] != said[other] and len(ids[one]) == len(ids[other])]
    assert len(rows) > 3
    return pd.DataFrame(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_written_between_prompts(kind: str, tmp_path: Path) -> None:
    model = OwnLanguageModel.of_run(lc.load_run(kind))
    result = lc.intervene(model, minimal_pairs(model), [
        lc.Patch("identity", "everything", BOTH),
        lc.Patch("random", "row", BOTH),
        lc.Patch("interchange", "everything", (0,), "residual")], n_bootstrap=100)
    table = result.table.set_index(["patch", "metric"])["value"]
    assert (table["identity", "unchanged"], table["identity", "kl"]) == (1.0, 0.0)
    assert table["random", "kl"] > 1e-3
    assert (table["interchange", "flip"], table["interchange", "unchanged"]) == (1.0, 0.0)
    run = lc.load_run(kind)
    assert (result.settings["run"], result.settings["run_id"], result.settings["prepend_bos"]) == (
        kind, run.id, True)
    assert len(type(result).load(result.save(tmp_path / "result")).table) == len(result.table)
