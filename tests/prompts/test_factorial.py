"""Prompts of every operation with every operands: sources, classes of answers, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from small_factorial import TEMPLATES, LearntModels, factorial_prompts

from latentcode import Patch, intervene
from latentcode.devices import make_generator
from latentcode.errors import ConfigError
from latentcode.metrics import CLASSES
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.interventions.patch import prompt_interventions, standard_interventions
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs

EVERY = (0, 1)
FACTORS = ("operation", "operands", "template")
SHORT = TEMPLATES[:1]


@pytest.fixture(scope="module")
def model(learnt_models: LearntModels) -> Any:
    return load_pretrained(learnt_models("gpt2"))


def generator(seed: int = 0) -> torch.Generator:
    return make_generator(seed, "prompts")


def shown(model: Any, frame: pd.DataFrame, pairs: MinimalPairs) -> list[dict[str, Any]]:
    """Return which row of the frame each problem of each pair is."""
    row_of = {tuple(model.to_tokens(row["prompt"])[0].tolist()): row
              for row in frame.to_dict("records")}
    batches = {name: [row_of[tuple(ids)] for ids in pairs.batch(name).inputs.tolist()]
               for name in ("bases", "sources", "control", *pairs.others)}
    return [dict(zip(batches, rows, strict=True)) for rows in zip(*batches.values(), strict=True)]


def test_sources_have_what_their_name_says(model: Any) -> None:
    frame = factorial_prompts()
    task = PromptCounterfactuals(model, frame)
    assert task.factorial
    assert task.constituents == ("capital", "food", "river")
    assert set(task.lacks) == {"permuted"}
    drawn = task.sample("ood", 60, generator())
    batched = list(task.batches("ood", 60, 25, generator()))
    assert [len(pairs) for pairs in batched] == [25, 25, 10]
    for pairs in (drawn, MinimalPairs.cat(batched)):
        assert set(pairs.others) == set(OTHERS)
        assert bool(pairs.counts.all())
        for rows in shown(model, frame, pairs):
            base, target = rows["bases"], rows["sources"]["operation"]
            x = rows["operands"]["operands"]
            assert {row["split"] for row in rows.values()} == {"ood"}
            assert target != base["operation"]
            assert x != base["operands"]
            for name in ("sources", "control", *(set(OTHERS) - {"unrelated"})):
                changed = {"sources": "operation", "control": "rest"}.get(name, name)
                row = rows[name]
                assert row["operation"] == (target if "operation" in changed
                                            else base["operation"]), name
                assert row["operands"] == (x if "operands" in changed else base["operands"]), name
                assert (row["template"] != base["template"]) == ("rest" in changed), name
            third = rows["unrelated"]
            assert third["operation"] not in (base["operation"], target)
            assert third["operands"] not in (base["operands"], x)
            assert third["template"] == base["template"]
    for rows, four in zip(shown(model, frame, drawn), drawn.candidates.tolist(), strict=True):
        assert four == [model.to_tokens(rows[name]["answer"].strip())[0, -1].item()
                        for name in ("bases", "sources", "operands", "operation+operands")]
    assert torch.equal(drawn.base_label, drawn.bases.info["label"])
    assert torch.equal(drawn.source_label, drawn.others["operation+operands"].info["label"])
    # Prompts of the same operands belong together.
    assert len(drawn.bases.combination.unique()) == 4


def test_every_pair_is_drawn_once_and_the_same_again(model: Any) -> None:
    task = PromptCounterfactuals(model, factorial_prompts())
    n = task.n_pairs("ood")
    assert n == 2 * 3 * 4 * (2 * 3)  # prompts, each with 2 other operations and 3 other operands

    def pair_of(pairs: MinimalPairs) -> list[tuple[int, ...]]:
        return [tuple(ids) for ids in torch.cat(
            [pairs.bases.inputs, pairs.others["operation+operands"].inputs], 1).tolist()]

    every = task.sample("ood", n, generator())
    assert len(set(pair_of(every))) == n
    assert len({tuple(ids) for ids in every.bases.inputs[:24].tolist()}) == 24
    batched = [pair for pairs in task.batches("ood", n, 17, generator()) for pair in pair_of(pairs)]
    assert set(batched) == set(pair_of(every))
    again, other = (task.sample("ood", n, generator(seed)) for seed in (0, 1))
    for name in OTHERS:
        assert torch.equal(every.others[name].inputs, again.others[name].inputs)
    assert pair_of(every) != pair_of(other)
    for draw in (lambda: task.sample("ood", n + 1, generator()),
                 lambda: next(task.batches("ood", n + 1, 8, generator()))):
        with pytest.raises(ConfigError, match=f"n is {n + 1}; expected at most {n}"):
            draw()


def test_with_all_that_enters_the_answer_is_that_of_the_source(model: Any) -> None:
    frame = factorial_prompts()
    whole = {"interchange": 1, "operands": 2, "operation+operands": 3, "operation+rest": 1,
             "operands+rest": 2, "operation+operands+rest": 3, "unrelated": 4, "control": 0,
             "rest": 0}
    result = intervene(model, frame, [
        Patch(name, "everything", (0,), "residual") for name in whole], n_bootstrap=100)
    rates = result.table.set_index(["patch", "metric"])["value"]
    for name, which in whole.items():
        assert rates[name, [*CLASSES][which]] == 1.0, name
    assert set(result.classes["class"]) == set(CLASSES)
    assert result.settings["factorial"]
    assert (result.table["n"] == 24).all()
    assert set(result.table["n_combinations"]) == {4}
    # Also where all codes are held at what they are: then values alone can bring it.
    frozen = intervene(model, frame, [
        Patch("operation+operands", "everything", (0,), "residual")
        + Patch("held", "everything", EVERY)], n_bootstrap=100)
    rates = frozen.table.set_index("metric")["value"]
    assert rates[[*CLASSES]].sum() == pytest.approx(1.0)
    assert rates[next(iter(CLASSES))] < 0.5


def test_the_likeliest_of_the_four_answers(model: Any) -> None:
    # Answers that the model never says, one of them always the likeliest.
    frame = factorial_prompts(SHORT).assign(answer=lambda rows: range(2, 2 + len(rows)))
    task = PromptCounterfactuals(model, frame)
    assert task.chance == 1.0 / model.cfg.d_vocab
    task.answer_among("answers")
    assert task.chance == 0.25
    assert "likeliest of the four answers" in task.notes[0]
    pairs = task.sample("ood", 20, generator())
    logits = torch.zeros(20, 1, model.cfg.d_vocab).index_fill(2, torch.tensor([0]), 9.0)
    for which, name in enumerate([*CLASSES][:4]):
        some = logits.clone()
        some[torch.arange(20), 0, pairs.candidates[:, which].long()] = 1.0
        outcomes = task.outcomes(pairs, logits, logits, some)
        assert outcomes[name].tolist() == [1.0] * 20
        assert outcomes["flip"].tolist() == [float(which == 1)] * 20
        batch = ("bases", "sources", "operands", "operation+operands")[which]
        assert bool(task.right(pairs, some, batch).all())
        assert not bool(task.right(pairs, logits, batch).any())  # all are as likely
    assert task.outcomes(pairs, logits, logits, logits)[[*CLASSES][4]].tolist() == [1.0] * 20


def test_pairs_whose_answers_agree_do_not_count(model: Any) -> None:
    frame = factorial_prompts(SHORT)
    shared = frame["operation"].eq("food") & frame["operands"].isin(["Italy", "Kenya"])
    frame.loc[shared, "answer"] = " Italy's-food"
    task = PromptCounterfactuals(model, frame)
    pairs = task.sample("ood", task.n_pairs("ood"), generator())
    same = [rows["bases"]["operands"] != rows["operands"]["operands"] and "food" in (
        rows["bases"]["operation"], rows["sources"]["operation"]) and {
            rows["bases"]["operands"], rows["operands"]["operands"]} == {"Italy", "Kenya"}
        for rows in shown(model, frame, pairs)]
    assert 0 < sum(same) < len(same)
    assert pairs.counts.tolist() == [not one for one in same]


def test_what_there_is_no_source_for_is_lacking(model: Any) -> None:
    frame = factorial_prompts(SHORT)
    frame = frame[frame["operation"] != "river"]
    task = PromptCounterfactuals(model, frame)
    rests = {name for name in OTHERS if "rest" in name}
    assert set(task.lacks) == {"control", "unrelated", "permuted", *rests}
    pairs = task.sample("ood", 8, generator())
    assert set(pairs.others) == {"operands", "operation+operands"}
    for chosen in (standard_interventions(range(2), 4, task.scopes, True, task.lacking),
                   prompt_interventions(task, range(2))):
        assert {"interchange", "operands", "operation+operands"} <= {i.value for i in chosen}
        assert not {i.value for i in chosen} & {*task.lacks}
        for intervention in chosen:
            intervention.check(task, model)
    for name, reason in (("unrelated", "no third operation"), ("control", "no other template"),
                         ("operation+rest", "no other template"), ("permuted", "no examples")):
        with pytest.raises(ConfigError, match=f"'{re.escape(name)}' cannot be written: .*{reason}"):
            Patch(name, "row", EVERY).check(task, model)
    # Templates of other lengths are none of each other.
    longer = factorial_prompts((*SHORT, "in {1} the {0} is now"))
    assert "of as many tokens" in PromptCounterfactuals(model, longer).lacks["rest"]
    with pytest.raises(ConfigError, match=r"'class_mean' cannot be written: .* single layout"):
        Patch("class_mean", "row", EVERY).check(
            PromptCounterfactuals(model, longer), model)


def test_minimal_pairs_alone(model: Any) -> None:
    task = PromptCounterfactuals(model, factorial_prompts(), factorial=False)
    assert not task.factorial
    assert task.lacks == {}
    assert task.n_pairs("ood") == 24 * 2
    pairs = task.sample("ood", 48, generator())
    assert pairs.candidates is None
    assert not pairs.others
    for rows in shown(model, factorial_prompts(), pairs):
        base, source, control = rows.values()
        assert [base[f] == source[f] for f in FACTORS] == [False, True, True]
        assert [base[f] == control[f] for f in FACTORS] == [True, True, False]
    assert "operation+operands" not in {
        i.value for i in prompt_interventions(task, range(2))}


def dropped(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(index=frame.index[frame["operation"].eq("food")
                                        & frame["operands"].eq("Peru")])


def changed(**cells: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return what changes cells of row 5."""
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.copy()
        for column, value in cells.items():
            frame[column] = frame[column].astype(object)
            frame.at[5, column] = value
        return frame
    return change


@pytest.mark.parametrize(("change", "message"), [
    (dropped, "no prompt of split 'train' has operation 'food' and operands 'Peru' in template"),
    (changed(operands="Italy"), "row 1 .* and row 5 .* both have operation 'capital' and operands "
     "'Italy' .* each once of split 'ood'"),
    (changed(prompt="the capital of Italy is"), "row 1 .* is the same tokens as row 5 .*'Chile'"),
    (changed(prompt="the capital of of Chile is"), "row 5 .* another number of tokens than row 1"),
    (changed(key="of"), "row 5 .* its query or key in another place"),
    (lambda frame: frame[frame["operation"] == "food"], "have the single operation 'food'"),
    (lambda frame: frame[frame["operands"].isin(["France", "Italy"])], "'ood' .*operands 'Italy'"),
    (lambda frame: frame.drop(columns="operands"), "no column operands; expected prompt, source"),
    (lambda frame: frame.assign(control=frame["prompt"]), r"and \['control'\] without source"),
])
def test_what_cannot_be_used_is_named(
    model: Any, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        PromptCounterfactuals(model, change(factorial_prompts()))
    assert len(str(error.value).splitlines()) == 1


def test_sources_that_are_given_are_taken(model: Any, tmp_path: Path) -> None:
    row: Mapping[str, Any] = {
        "prompt": "the capital of Peru is", "source": "the food of Peru is", "query": -1, "key": 2,
        "answer": " Peru's-capital", "source_answer": " Peru's-food", "operation": "capital",
        "operands": "Peru"}
    task = PromptCounterfactuals(model, pd.DataFrame([row]))
    assert not task.factorial
    assert task.constituents == (" Peru's-capital".strip(), "Peru's-food")
    # And a factorial is read from a file as well as from a frame.
    file = tmp_path / "prompts.jsonl"
    factorial_prompts().to_json(file, orient="records", lines=True)
    assert PromptCounterfactuals(model, file).n_pairs("ood") == 144
