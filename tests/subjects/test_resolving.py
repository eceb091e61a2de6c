"""Is one place enough to say which model is asked about which problems?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from small_factorial import LearntModels, factorial_prompts

import latentcode as lc
from latentcode.errors import ConfigError, LatentCodeError, ProbeError, UnknownNameError
from latentcode.prompts import as_language_model
from latentcode.subjects.base import CodesSubject
from latentcode.subjects.prompts import PromptSubject
from latentcode.subjects.tasks import ModelSubject, RunSubject

FEW: dict[str, Any] = {"n_train": 60, "n_heldout": 60, "layers": [1], "n_bootstrap": 100}


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "softmax")


@pytest.fixture(scope="module")
def gpt2(learnt_models: LearntModels) -> Path:
    return learnt_models("gpt2")


def test_a_run_is_the_same_by_all_its_names(run: lc.Run) -> None:
    wanted = lc.extract(run, n=5)
    for one in (run.path, str(run.path), lc.subject(run)):
        np.testing.assert_array_equal(lc.extract(one, n=5).scores, wanted.scores)
    assert isinstance(lc.subject("sraven-hyla"), RunSubject)
    assert isinstance(lc.subject("zoo:sraven-hyla"), RunSubject)


def test_probes_draw_what_the_task_chooses(smoke_run: Callable[[str, str], lc.Run]) -> None:
    run = smoke_run("logic", "softmax")
    subject = lc.subject(run)
    assert isinstance(subject, RunSubject)
    assert isinstance(subject.probing, RunSubject)
    assert subject.task.config == run.config.task
    assert subject.probing.task.config == subject.task.probe_config != run.config.task
    given = lc.subject(run, run.config.task)
    assert given.probing is given


def test_a_model_in_hand_answers_as_its_run(run: lc.Run) -> None:
    task = lc.make_task(run.config.task)
    subject = lc.subject(run.load_model(), task)
    assert isinstance(subject, ModelSubject)
    np.testing.assert_array_equal(lc.extract(subject, n=5).scores, lc.extract(run, n=5).scores)
    # The initial weights of a run are known; those of a model in hand are drawn.
    known = lc.extract(run, n=5, untrained=True).scores
    seed = run.config.training.seed
    drawn = [lc.extract(subject, n=5, untrained=True, seed=s).scores for s in (seed, seed + 1)]
    np.testing.assert_array_equal(lc.extract(run, n=5, untrained=True, seed=seed).scores, drawn[0])
    assert known.shape == drawn[1].shape
    found, of_run = (lc.decode(one, task.config, ["rule"], controls=False, **FEW).table
                     for one in (run.load_model(), run))
    assert_frame_equal(found, of_run)


def test_codes_answer_as_the_run_they_are_of(run: lc.Run) -> None:
    parts = {split: [lc.extract(run, split=split, n=60, residuals=not untrained,
                                untrained=untrained) for untrained in (False, True)]
             for split in ("train", "ood")}
    (train, train_0), (heldout, heldout_0) = parts["train"], parts["ood"]
    subject = lc.subject(train, heldout, untrained=(train_0, heldout_0))
    assert isinstance(subject, CodesSubject)
    few = {name: value for name, value in FEW.items() if not name.startswith("n_t")}
    del few["n_heldout"]
    wanted = lc.decode(run, labels=["rule"], **FEW).table
    assert_frame_equal(lc.decode(subject, labels=["rule"], **few).table, wanted)
    alone = lc.decode(train, heldout, ["rule"], controls=False, **few).table
    assert_frame_equal(alone[alone["features"] == "code"].reset_index(drop=True),
                       wanted[wanted["features"] == "code"].reset_index(drop=True))
    with pytest.raises(ProbeError, match="a single set of codes is given"):
        lc.decode(train, labels=["rule"])
    with pytest.raises(ProbeError, match=r"labels are missing, .* they have: .*rule_0"):
        lc.similarity(heldout)
    with pytest.raises(ProbeError, match=r"a model is needed, and .* stands for codes"):
        lc.intervene(train)
    with pytest.raises(UnknownNameError, match="unknown split 'trian'"):
        lc.knn_purity(heldout, split="trian", controls=False)
    some = lc.knn_purity(heldout, labels="rule", controls=False, layers=1, n=40, n_bootstrap=100)
    assert some.table["n"].max() == 40


def test_prompts_are_asked_of_a_name_a_bridge_and_what_is_opened(
    gpt2: Path, tmp_path: Path
) -> None:
    frame = factorial_prompts()
    file = tmp_path / "prompts.jsonl"
    frame.to_json(file, orient="records", lines=True)
    bridge = lc.load_pretrained(gpt2)
    wanted = lc.extract(gpt2, frame)
    assert len(wanted) == len(frame[frame["split"] == "ood"])
    for model, problems in ((str(gpt2), file), (bridge, str(file)), (bridge, lc.Prompts.read(file)),
                            (as_language_model(bridge), frame)):
        subject = lc.subject(model, problems)
        assert isinstance(subject, PromptSubject)
        np.testing.assert_array_equal(lc.extract(subject).scores, wanted.scores)
    assert len(lc.extract(gpt2, frame, n=3)) == 3
    assert {*lc.extract(gpt2, frame, split="train").labels["split"]} == {"train"}
    narrow = lc.subject(gpt2, frame, dtype="bfloat16")
    assert next(narrow.model().parameters()).dtype == torch.bfloat16
    assert lc.decode(narrow, n_bootstrap=100, controls=False).settings["train"]["split"] == "train"


def test_texts_are_prompts_by_pattern(gpt2: Path) -> None:
    text = "the capital of Peru is the capital of Peru is the river of Peru is the river of Kenya"
    texts = [text, *(text.replace("Peru", name) for name in ("Chile", "Japan", "Nepal"))]
    subject = lc.subject(gpt2, texts)
    assert {"query->induction"} <= set(subject.pairs)
    assert subject.probe_labels[0] == "copied"
    frame = pd.DataFrame({"text": texts, "kind": ["a", "b", "a", "b"]})
    codes = lc.extract(gpt2, frame, pairs="query->induction")
    assert set(codes.labels["kind"]) == {"a", "b"}
    assert [pair.name for pair in codes.pairs] == ["query->induction"]


@pytest.mark.parametrize(("model", "problems", "how", "message"), [
    ("sraven-hylla", None, {}, "unknown model 'sraven-hylla'; .*did you mean sraven-hyla"),
    ("gpt2", None, {}, "A language model's name also needs problems: prompts or texts"),
    ("sraven-hyla", "sraven", {}, r"'sraven', which is no file; .* run\.config\.task"),
    ("sraven-hyla", ["rule"], {}, "problems are texts .'rule'.* reads no text; .* by labels="),
    ("sraven-hyla", lc.LogicConfig(), {}, "task has d_input 5 and d_output 1; expected 8 and 8"),
    ("sraven-hyla", None, {"dtype": "bfloat16"}, "dtype is 'bfloat16', but the problems are"),
    (3, None, {}, "model is 3; expected a run, the name of a model, or a model in hand"),
])
def test_what_is_no_model_and_no_problem_is_said(
    model: Any, problems: Any, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(LatentCodeError, match=message) as caught:
        lc.subject(model, problems, **how).model()
    assert "\n" not in str(caught.value)


def test_what_is_in_hand_stays_as_it_is(run: lc.Run, gpt2: Path) -> None:
    subject, bridge = lc.subject(run), lc.load_pretrained(gpt2)
    with pytest.raises(ProbeError, match="device is 'cpu', but the model is a subject"):
        lc.extract(subject, device="cpu")
    with pytest.raises(ProbeError, match="dtype is 'bfloat16', but the model is in hand"):
        lc.subject(bridge, factorial_prompts(), dtype="bfloat16")
    with pytest.raises(ConfigError, match="problems are missing: a TransformerBridge does not say"):
        lc.subject(bridge)
    with pytest.raises(ConfigError, match="of which the tokenizer is not known"):
        lc.subject(run.load_model(), factorial_prompts())


def test_a_question_says_what_prompts_lack(gpt2: Path) -> None:
    frame = factorial_prompts()
    plain = frame.drop(columns=["operation", "operands", "answer", "template"])
    with pytest.raises(ProbeError, match="labels are missing, and these problems do not say which"):
        lc.decode(gpt2, plain)
    with pytest.raises(ConfigError, match="minimal pairs have no column source, answer"):
        lc.intervene(gpt2, plain)
    with pytest.raises(ProbeError,
                       match=r"label 'operation' has no distances .* knn_purity"):
        lc.topography(gpt2, frame)
    with pytest.raises(ProbeError, match="labels are functions of a batch, and the problems"):
        lc.decode(gpt2, frame, {"even": len})


def test_checkpoints_of_a_run_are_models_of_their_own(run: lc.Run) -> None:
    steps = run.checkpoints()
    with pytest.raises(ProbeError, match="2 steps of 2 models"):
        lc.align([run, "sraven-hyla"], step=[1, 2])
    first, last = (lc.subject(run, step=step) for step in (steps[0], steps[-1]))
    assert (first.name, last.name) == (f"{run.name}@{steps[0]}", f"{run.name}@{steps[-1]}")
    assert lc.extract(first, n=2).meta["run"] == first.name
    frame = pd.DataFrame({"prompt": ["one two"], "query": [-1], "key": [0]})
    step = lc.load_run("text-softmax").checkpoints()[-1]
    assert lc.subject("text-softmax", frame, step=step).name == f"text-softmax@{step}"


def test_a_batch_size_is_that_of_every_pass(run: lc.Run, gpt2: Path) -> None:
    small, usual = lc.subject(run, batch_size=3), lc.subject(run)
    assert [subject.patched_at_once for subject in (small, usual)] == [3, 250]
    passes = [x for x, _ in small.reader("ood", n=7).inputs_and_keys()]
    assert [len(x) for x in passes] == [3, 3, 1]
    assert lc.subject(gpt2, factorial_prompts(), batch_size=5).patched_at_once == 5
    assert lc.subject(gpt2, factorial_prompts()).patched_at_once == 32


def test_prompts_without_splits_are_divided_where_something_is_trained(gpt2: Path) -> None:
    frame = factorial_prompts().drop(columns="split")
    found = lc.das(gpt2, frame, rank=2, searches=["trained"], steps=5, n_bootstrap=100, heldout=0.5)
    assert found.settings["split"] == "ood"
    assert found.settings["n"] + found.settings["n_train"] == len(frame)
    assert lc.intervene(gpt2, frame, lc.Patch("identity", "row", (0,)),
                        n_bootstrap=100).settings["split"] == "prompts"


def test_models_in_hand_are_told_apart(run: lc.Run) -> None:
    task = lc.make_task(run.config.task)
    models = [lc.HookedTransformer(run.config.model, seed=seed).eval() for seed in (1, 2)]
    found = lc.align(models, task, ["rule"], n_train=60, n_heldout=60, layers=1, n_bootstrap=100,
                     controls=False)
    assert set(found.transfer["run_a"]) == {"softmax 1", "softmax 2"}
