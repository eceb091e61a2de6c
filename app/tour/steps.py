"""What does a newcomer look at, in which order? Prepared views, each with a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

MODEL = "sraven-hyla"
"""Whose codes and problems the tour shows; it comes with the library."""
PARAMETER = "tour"
"""Name of the step in the URL, counted from 1."""


@dataclass(frozen=True)
class Step:
    """A view, and what is said of it.

    page   in the URL
    query  what the view depends on, by its names in the URL
    at     what the step points at, as a selector of CSS
    text   what is seen: no number or name that the page does not show
    do     what to try
    """

    title: str
    page: str
    query: Mapping[str, str] = field(hash=False)
    at: str
    text: str
    do: str


_CODES = {"model": MODEL, "split": "ood", "layer": "3", "pair": "response->response"}
_PLANE = f"ood!2000!tsne!3!response->response!{MODEL}"
_BENCH = {"model": MODEL, "split": "ood", "instance": "11", "which": "0", "target": "-2",
          "what": "other rule and operands", "site": "codes", "scope": "context"}

STEPS: tuple[Step, ...] = (
    Step("A map of codes", "explore", _CODES, ".st-key-knn_purity-chart",
         "Each point is the code of one problem: one score per head. The page opens where the "
         "codes separate the rule best, and colours them by it. The bars compare all labels, and "
         "each with itself, shuffled (the dark mark).",
         "Click another bar, and see whether the clusters stay pure."),
    Step("A point is a problem", "explore", {**_CODES, "instance": "5"}, ".problem",
         "Beside the map: one of the problems, the model's answer and the right one. Below, its "
         "code, a bar per head, and the problems whose codes are nearest.",
         "Click another point of the map, or move the mouse over it."),
    Step("Draw around a cluster", "explore",
         {**_CODES, "colour": "context_1", "select": f"B-44_-9.5_-37.4_-3.1@{_PLANE}"},
         ".st-key-distribution",
         "The box on the left of the map holds one cluster. Beside it: what its problems have in "
         "common. They share one value of context_1, while all problems together have eight.",
         "Draw around another cluster. A double click on the map clears the selection."),
    Step("Layer by layer", "explore", {**_CODES, "layer": "1", "colour": "rule"},
         ".st-key-track-chart",
         "The line below the map says how well the codes of each layer separate the colour, here "
         "the rule; dashed: shuffled labels. In layer 0 all codes are still the same.",
         "Click layer 2, then 3: every point travels to its place there."),
    Step("Patch its codes", "intervene", _BENCH, ".st-key-answers",
         "Does the model use its codes? Those of this problem's first two rows are replaced by "
         "those of a source with the rule -2 and other operands. The answer becomes that of -2 on "
         "this problem's operands, not the source's own: the rule arrived. The controls do not "
         "bring it.",
         "Choose another place, values in place of codes, or click tokens of the problem."),
    Step("Replicate on 200 problems", "intervene", _BENCH, ".st-key-replicate",
         "One problem shows that it can happen, not how often it does.",
         "Press the button: the same is written into 200 problems, with bars that come as the "
         "model answers, beside the controls."),
    Step("The evidence", "evidence", {},
         ".st-key-stacks-story-0 [data-testid=stColumn]:first-child",
         "The central claims, of which this is the first, each with its verdict, a sentence and a "
         "picture. Below them, every claim in a list, which the buttons count: we agree, we "
         "differ, it is undecided, or it has not been run.",
         "Open a claim: what was published, what we find, the rule of the verdict and the "
         "figure."),
)


def address(number: int) -> str:
    """Return the address of a step, counted from 1, as seen from any page."""
    step = STEPS[number - 1]
    return f"./{step.page}?{urlencode({**step.query, PARAMETER: str(number)})}"
