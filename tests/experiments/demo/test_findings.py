"""Does the page's opening say what the numbers say, and the opposite where they do?"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import pandas as pd

import latentcode as lc
from latentcode.answers import CLASSES
from latentcode.experiments.demo import shown
from latentcode.experiments.demo.asking import (
    ALL,
    AMONG,
    LEAST_COUNTED,
    READINGS,
    ROW,
    SOURCE_HAS,
    TELLING,
    Asked,
    Reading,
    places,
)
from latentcode.experiments.demo.demo import TEMPLATE
from latentcode.experiments.evidence.pages import render
from latentcode.probes.common.contrasts import Contrasts
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions.result import PLACE, InterventionResult

R = TypeVar("R", DecodingResult, InterventionResult)
RUN: Any = SimpleNamespace(config=lc.preset("smoke", "logic", "hyla"))
CONTROLS = {"untrained": 0.3, "shuffled": 0.25, "residual": 0.5}
BROUGHT = {AMONG: "operation", ROW: "operands", ALL: "answer"}


def decoded(code: float, wide: float = 0.04, chance: float = 0.28, **others: float
            ) -> DecodingResult:
    """Scores of the last layer, each with an interval of +- `wide`; in layer 0 all are 0.9."""
    scores = {"code": code, **CONTROLS, **others}
    place = {"pair": "query->query", "label": "terms"}
    return result(
        DecodingResult, {"controls": []},
        table=pd.DataFrame([
            {"layer": layer, **place, "features": features, "metric": "f1", "value": value,
             "low": value - wide, "high": value + wide, "chance": chance, "n_unseen": 0,
             "converged": True, "dimensions": 8, "n_heldout_combinations": 9}
            for layer in (0, 1) for features, score in scores.items()
            for value in [score if layer else 0.9]]),
        contrasts=Contrasts(pd.DataFrame([
            {"layer": layer, **place, "features": "code", "quantity": "f1", "against": against,
             "value": value, "low": value - wide, "high": value + wide}
            for layer in (0, 1) for against, score in {**scores, "chance": chance}.items()
            for value in [code - score if layer else 0.5] if against != "code"])))


def result(kind: type[R], settings: dict[str, Any], **tables: Any) -> R:
    """Return a result of which only some tables have rows."""
    empty = {name: pd.DataFrame(columns=list(columns))
             for name, columns in kind.COLUMNS.items() if name != "contrasts"}
    return kind(**{**empty, **tables}, settings=settings)


def written(n: int, low: float = 0.2) -> InterventionResult:
    """Every source brings what `BROUGHT` names in 0.7 of answers; `low`: of all differences."""
    rates, differences = [], []
    for name, (site, scope, layers) in places(RUN).items():
        for source in SOURCE_HAS:
            at = dict.fromkeys(PLACE, "") | {"patch": source, "scope": scope, "site": site,
                                             "layers": ",".join(map(str, layers))}
            main = BROUGHT.get(name, "base") if source == TELLING else "else"
            rates += [at | {"metric": one, "value": 0.7 if one == main else 0.05, "low": 0.0,
                            "high": 1.0, "n": n, "n_combinations": 9} for one in CLASSES]
            differences += [at | {"against": other, "class": main, "value": 0.5, "low": low,
                                  "high": 1.0} for other in SOURCE_HAS if other != source]
    return result(InterventionResult, {"n_known": n, "n": n, "n_counted": n, "chance": None},
                  table=pd.DataFrame(rates), contrasts=Contrasts(pd.DataFrame(differences)))


def asked(query: DecodingResult, context: DecodingResult, name: str = "hyla somewhere",
          patched: InterventionResult | None = None) -> Asked:
    both: Mapping[Reading, DecodingResult] = dict(zip(READINGS, (query, context), strict=True))
    return Asked(name, RUN, {}, both, patched)


def said(*models: Asked) -> dict[str, str]:
    """Return the paragraphs of the page's opening by the words in bold that they begin with."""
    empty = dict.fromkeys(("found", "learned", "decoding", "sraven"), pd.DataFrame())
    text = render(TEMPLATE, tables=empty, n_projected=10, trustworthiness={"a": 0.9},
                  sraven_steps=2, **shown.values(models))
    opening = text.partition("## What was found")[2].partition("## The idea")[0]
    return {part.partition("**")[0]: " ".join(part.partition("**")[2].split())
            for part in opening.split("\n\n**")[1:]}


def test_a_code_tells_where_its_difference_from_every_control_is_above_0() -> None:
    found = said(asked(decoded(0.41), decoded(0.3)))
    assert "one query" in found["A code tells"]
    assert "0.41 [0.37, 0.45] in hyla somewhere" in found["A code tells"]
    assert "untrained model by 0.11 [0.07, 0.15]" in found["A code tells"]
    assert "one context" not in found["A code tells"]
    assert "one query" not in found["A code does not tell"]
    untold = found["A code does not tell"]
    assert "F1 0.30, less that of the nearest control 0.00 (hyla somewhere)" in untold


def test_differences_that_may_be_0_are_not_told() -> None:
    for result in (decoded(0.33), decoded(0.41, shuffled=0.4), decoded(0.41, chance=0.38)):
        one = asked(result, decoded(0.3))
        assert not one.tells("fixed_query")
        assert said(one)["A code tells"].startswith("nothing")
    assert "A code does not tell" not in said(asked(decoded(0.6), decoded(0.6)))


def test_nothing_is_concluded_from_the_residual_stream_if_a_code_is_above_it() -> None:
    below = said(asked(decoded(0.41), decoded(0.3)))["The residual stream"]
    assert "better than the code in 2 of the 2" in below
    assert "clearly worse in 0" in below
    assert "No probe here" in below
    above = said(asked(decoded(0.41), decoded(0.7)))["The residual stream"]
    assert "better than the code in 1 of the 2" in above
    assert "clearly worse in 1" in above
    assert "No probe" not in above


def test_places_bring_what_the_criteria_say() -> None:
    scores = decoded(0.41), decoded(0.3)
    text = said(asked(*scores, patched=written(90)))["What codes cause in hyla somewhere:"]
    assert (f"{AMONG.capitalize()} bring the source's function: 0.70 of answers (source with the "
            "same function 0.05") in text
    assert f"{ROW.capitalize()} bring the source's query: 0.70" in text
    assert f"{ALL.capitalize()} bring the source's whole answer: 0.70" in text
    assert "leaves 0.70 of answers" in text
    found = said(asked(*scores, patched=written(90, low=-0.1)))
    text = found["What codes cause in hyla somewhere:"]
    assert text.count(" do not bring ") == 3
    assert " bring " not in text.replace(" do not bring ", "")


def test_few_answers_give_no_rates() -> None:
    scores = decoded(0.41), decoded(0.3)
    few = [asked(*scores, "a", written(LEAST_COUNTED - 1)), asked(*scores, "b")]
    found = said(*few, asked(*scores, "c", written(LEAST_COUNTED)))
    assert [heading for heading in found if "cause" in heading] == ["What codes cause in c:"]
    assert f"a ({LEAST_COUNTED - 1} problems) and b (0 problems)" in found["Not known:"]


def test_rates_are_told_place_by_place() -> None:
    table = asked(decoded(0.4), decoded(0.3), patched=written(90)).rates()
    assert len(table) == len(places(RUN)) * len(SOURCE_HAS)
    first = table.iloc[0]
    assert (first["written"], first["n"]) == (AMONG, 90)
    assert first["source's function"] == "0.70 [0.00, 1.00]"
