"""Minimal pairs of prompts that a random language model answers rightly: by its own predictions."""

from __future__ import annotations

from typing import Any

import torch

PLACES = ("France", "Italy", "Peru", "Kenya", "Paris", "Rome", "Lima", "Nairobi")
TEMPLATES = ("The capital of {}", "Then the river in {}")


def pairs_of(model: Any, templates: tuple[str, ...] = TEMPLATES) -> list[dict[str, Any]]:
    """Return pairs whose answers are the tokens that the model predicts, where these differ.

    The source names another place, which is the last token and the query; the key is the word
    before the place.
    """
    rows = []
    for template in templates:
        said = {place: predicted(model, template.format(place)) for place in PLACES}
        rows += [
            {"prompt": template.format(place), "source": template.format(other),
             "query": -1, "key": template.split()[-2], "answer": said[place],
             "source_answer": said[other], "label": place, "source_label": other,
             "combination": place}
            for place in PLACES for other in PLACES if said[place] != said[other]]
    return rows


def with_unsaid_answers(model: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return the pair with two answers that the model prefers in the right order, but never says.

    Of all tokens those whose order differs most between prompt and source.
    """
    with torch.no_grad():
        before, after = (model(model.to_tokens(row[column]))[0, -1]
                         for column in ("prompt", "source"))
    margin = torch.minimum(before[:, None] - before, after - after[:, None])
    for said in (int(before.argmax()), int(after.argmax())):
        margin[said] = margin[:, said] = -1.0
    answer, source_answer = divmod(int(margin.argmax()), len(before))
    assert margin[answer, source_answer] > 0.01
    return {**row, "answer": answer, "source_answer": source_answer}


def predicted(model: Any, text: str) -> int:
    """Return the token that the model says comes next."""
    with torch.no_grad():
        return int(model(model.to_tokens(text))[0, -1].argmax())
