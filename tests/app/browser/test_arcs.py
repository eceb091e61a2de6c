"""Do the arcs on a problem stand for the scores of its query, and end where its tokens are?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from explorer import Explorer

import latentcode as lc
from latentcode.app.components.problems import LEAST, strongest
from latentcode.codes.reader import instances
from latentcode.models.hypernetwork import two_ways

ARCS = """() => [...document.querySelectorAll('svg.arcs .arc')].map(arc => {
    const at = length => {
        const point = arc.getPointAtLength(length).matrixTransform(arc.getScreenCTM());
        return [point.x, point.y];
    };
    const box = token => {
        const {left, top, right, bottom} = document.querySelector(
            `.arcs-problem [data-token="${token}"]`).getBoundingClientRect();
        return [left, top, right, bottom];
    };
    return {head: Number(arc.dataset.head), key: Number(arc.dataset.key),
        width: Number(arc.getAttribute('stroke-width')), colour: arc.getAttribute('stroke'),
        dashed: arc.hasAttribute('stroke-dasharray'), begins: at(0), ends: at(arc.getTotalLength()),
        highest: arc.getBoundingClientRect().top, to: box(arc.dataset.key)};
})"""


PAIRS = {"sraven-hyla": "response->response", "logic-softmax": "query->query"}
"""Model -> the pair whose query is drawn."""


def scores_of(model: str, layer: int, query: int) -> np.ndarray:
    """Return the scores [H, K] of a query of the first held-out problem."""
    run = lc.load_run(model)
    task = lc.make_task(lc.make_task(run.config.task).probe_config)
    inputs = instances(task, "ood", [0]).inputs[0]
    return two_ways(run.load_model(), inputs, layer, query).pattern[:, query].numpy()


def opened(explorer: Explorer, model: str, layer: int) -> list[dict[str, Any]]:
    explorer.open("explore", {"model": model, "layer": str(layer), "pair": PAIRS[model],
                              "instance": "0", "look": "attention", "projection": "PCA"})
    explorer.page.locator("svg.arcs .arc").first.wait_for(state="attached")
    return arcs(explorer)


def arcs(explorer: Explorer) -> list[dict[str, Any]]:
    explorer.page.wait_for_timeout(300)
    found: list[dict[str, Any]] = explorer.page.evaluate(ARCS)
    return found


def expected(scores: np.ndarray, heads: list[int]) -> set[tuple[int, int]]:
    enough = np.abs(scores) >= LEAST * np.abs(scores).max()
    return {(head, int(key)) for head in heads for key in np.flatnonzero(enough[head])}


def ends_at_its_token(arc: dict[str, Any]) -> bool:
    (x, y), (left, top, right, bottom) = arc["ends"], arc["to"]
    return bool(left - 2 <= x <= right + 2 and top - 2 <= y <= bottom + 2)


def test_arcs_are_the_scores_end_at_their_panels_and_can_be_switched(explorer: Explorer) -> None:
    scores = scores_of("sraven-hyla", 3, 26)
    shown = opened(explorer, "sraven-hyla", 3)
    heads = strongest(scores)
    assert {(arc["head"], arc["key"]) for arc in shown} == expected(scores, heads)
    assert len(shown) == len(expected(scores, heads))
    sizes = [abs(scores[arc["head"], arc["key"]]) for arc in shown]
    widths = [arc["width"] for arc in shown]
    assert np.all(np.diff(np.array(widths)[np.argsort(sizes)]) >= -1e-3)
    assert max(widths) > 1.3 * min(widths)
    assert [arc["dashed"] for arc in shown] == [
        bool(scores[arc["head"], arc["key"]] < 0) for arc in shown]
    assert {arc["dashed"] for arc in shown} == {True, False}
    assert len({(arc["head"], arc["colour"]) for arc in shown}) == len(
        {arc["head"] for arc in shown}) == len({arc["colour"] for arc in shown})
    assert all(map(ends_at_its_token, shown))
    explorer.page.set_viewport_size({"width": 900, "height": 900})
    explorer.until(lambda: arcs(explorer)[0]["to"] != shown[0]["to"])
    narrow = arcs(explorer)
    assert len(narrow) == len(shown)
    assert all(map(ends_at_its_token, narrow))
    explorer.page.get_by_role("button", name="all", exact=True).click()
    assert len(arcs(explorer)) == len(expected(scores, list(range(len(scores)))))
    explorer.page.get_by_role("button", name="none", exact=True).click()
    assert arcs(explorer) == []
    explorer.page.get_by_role("button", name=f"head {heads[1]}", exact=True).click()
    only = arcs(explorer)
    assert {(arc["head"], arc["key"]) for arc in only} == expected(scores, [heads[1]])
    touched = only[0]
    explorer.page.locator("svg.arcs .touch").first.dispatch_event("pointerenter")
    told = explorer.page.locator(".arcs-told").inner_text()
    assert told.startswith(f"head {heads[1]}, ")
    assert float(told.rpartition(": ")[2]) == pytest.approx(
        float(scores[heads[1], touched["key"]]), rel=6e-3)
    explorer.check()


def test_arcs_of_examples_stand_above_their_line(explorer: Explorer) -> None:
    shown = opened(explorer, "logic-softmax", 1)
    scores = scores_of("logic-softmax", 1, 31)
    assert {(arc["head"], arc["key"]) for arc in shown} == expected(scores, strongest(scores))
    for arc in shown:
        assert ends_at_its_token(arc)
        assert arc["highest"] < arc["to"][1]
        assert abs(arc["ends"][1] - arc["to"][1]) < 2
    explorer.check()
