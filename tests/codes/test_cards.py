"""Do cards show the problems that codes are the codes of, and what the model answers?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from small_text import small_text

import latentcode as lc
from latentcode.codes.browser import WRONG, ProblemCard, cards_of_codes, problem_cards
from latentcode.errors import ArtifactError
from latentcode.tasks.base import DRAW

ROWS = [0, 3, DRAW + 2]


@pytest.fixture(scope="module")
def codes() -> lc.LatentCodes:
    return lc.load_codes("sraven-hyla")


@pytest.fixture(scope="module")
def model() -> lc.HookedTransformer:
    return lc.load_model("sraven-hyla")


@pytest.fixture
def passes(model: lc.HookedTransformer) -> Iterator[list[int]]:
    """The sizes of the batches that the model has seen."""
    seen: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    yield seen
    hook.remove()


def test_the_model_answers_all_rows_in_one_pass(
    codes: lc.LatentCodes, model: lc.HookedTransformer, passes: list[int]
) -> None:
    task = codes.meta["task"]["n_features"]
    cards = problem_cards(lc.load_run("sraven-hyla").config.task, "ood", ROWS, model=model)
    assert passes == [len(ROWS)]
    batch = lc.instances("sraven-hyla", "ood", ROWS)
    with torch.inference_mode():
        given = model(batch.inputs)[:, -task:].argmax(-1).tolist()
    for i, card in enumerate(cards):
        assert card.instance == ROWS[i]
        assert card.given == tuple(given[i])
        assert card.target == tuple(batch.targets[i].tolist())
        assert card.right == (given[i] == batch.targets[i].tolist())


def test_codes_show_their_own_problems(
    codes: lc.LatentCodes, model: lc.HookedTransformer
) -> None:
    accuracy = codes.labels["accuracy"].to_numpy()
    wrong, right = int(accuracy.argmin()), int(accuracy.argmax())
    cards = cards_of_codes(codes, [right, wrong], model=model)
    assert [card.right for card in cards] == [True, False]
    assert cards_of_codes(codes[wrong:], [0], model=model) == cards[1:]
    for card in cards:
        row = codes.labels.iloc[card.instance]
        assert card.target == tuple(row[f"target_{j}"] for j in range(3))
        assert card.html.count(">?</span>") == 3
        assert card.html in card._repr_html_()
        assert "<" not in repr(card)
    full = cards_of_codes(codes, [wrong], model=model, size="full")[0]
    assert replace(full, html="") == replace(cards[1], html="")
    assert all(str(codes.labels[f"rule_{j}"][wrong]) in full.html for j in range(3))


def test_what_cannot_be_shown_is_said(codes: lc.LatentCodes) -> None:
    labels = codes.labels.copy()
    labels.loc[5, "rule_0"] = "no such rule"
    other = replace(codes, labels=labels)
    assert cards_of_codes(other, [4])[0].instance == 4
    with pytest.raises(ArtifactError, match="instance 5 cannot be shown"):
        cards_of_codes(other, [4, 5])


def test_a_text_is_answered_with_text() -> None:
    task = small_text()
    batch = lc.instances(task, "ood", range(4))
    card, = problem_cards(task, "ood", [2])
    query = int(batch.info["query"][2])
    assert card.target == (repr(task.data.tokenizer.pieces[batch.targets[2, query]]),)
    assert ProblemCard(0, "", ("'<b>'",), ("' x'",)).answer == (
        f"The model answers <b style='color:{WRONG}'>&#x27;&lt;b&gt;&#x27;</b>; right is "
        "&#x27; x&#x27;.")
