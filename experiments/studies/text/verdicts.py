"""Where are the criteria met? They are applied to the tables of all models."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pandas as pd

from latentcode.experiments.evidence.found import Found
from latentcode.experiments.evidence.rules import (
    Part,
    apart,
    difference,
    everywhere,
    separate,
    together,
)
from latentcode.experiments.paper.token_losses import CONTROL, REPEATED
from latentcode.experiments.studies.operation.criteria import answer_entering, met
from latentcode.experiments.studies.text.measuring import CRITERIA
from latentcode.models.config import kind_of
from latentcode.probes.common.results import where
from latentcode.tasks.text.patterns import INDUCTION

YES, NO, UNDECIDED = "yes", "no", "undecided"
CONTROLS = ("untrained", "shuffled", "chance")
"""What a probe on codes is compared with."""
UNASKED = "carries the operands"
"""The statement that cannot be asked: what follows where nothing is copied is not known."""
PLACE_STATEMENTS = {
    "carries the operation": "says where to copy from",
    "carries the operands": "carries what stands there", "carries the answer": "carries the answer"}
"""The statements, where the operation is the place that is copied from."""
LEAST_CLASSES = 3
"""Classes of answers without which no operation's criterion is met in any layers."""
PLACE = ("site", "scope", "layers")
FEWEST: int = CRITERIA["least_seeds"]
"""Seeds without which nothing is said."""


def _said(*parts: Part) -> str:
    """Return the answer of a question that asks for all of some tests."""
    return {"agrees": YES, "differs": NO}.get(together(parts), UNDECIDED)


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return what was measured, and where the criteria are met, by name of the table."""
    measured = {
        "losses": found.joined("losses", "losses"),
        "scores": found.joined("scores", "table"),
        "streams": found.joined("streams", "table"),
        "flips": found.joined("pairs", "table"),
        "classes": found.joined("factorial", "classes"),
        "comparisons": found.joined("factorial", "contrasts"),
        "elsewhere_classes": found.joined("elsewhere", "classes"),
        "elsewhere_comparisons": found.joined("elsewhere", "contrasts")}
    pairs, known, elsewhere = (found.joined(name, "counted")["known"]
                               for name in ("pairs", "factorial", "elsewhere"))
    asked = [of[0] for of, _ in found.results["pairs"]]
    runs = pd.DataFrame({
        "kind": [kind_of(run.config.model) for run in asked],
        "seed": [run.config.training.seed for run in asked],
        "updates": [run.checkpoints()[-1] for run in asked],
        "perplexity": [run.latest().loc["perplexity", "test"] for run in asked],
        "n": found.plan.ask["pairs"].settings["n"], "pairs": pairs, "known": known,
        "known elsewhere": elsewhere})
    return {
        "runs": runs, "copying": copying(measured["losses"]),
        "telling": telling(measured["scores"]), "kinds": kinds_apart(measured["scores"]),
        "moving": moving(measured["flips"]),
        "statements": statements(measured["comparisons"], runs, measured["streams"].assign(
            part="language", inputs="")),
        "places": places_said(measured["elsewhere_comparisons"], runs),
        **measured}


def copying(losses: pd.DataFrame) -> pd.DataFrame:
    """Does a kind copy? A row per kind, of `token_losses` with columns kind and seed.

    gain  loss of the tokens where the pair is new less that where it is repeated, in nats: the
          mean, smallest and largest over seeds
    """
    wide = losses.pivot(index=["kind", "seed"], columns="class", values="loss")
    gain = (wide[CONTROL] - wide[REPEATED]).rename("gain").reset_index()
    rows = []
    for kind, values in gain.groupby("kind", sort=False)["gain"]:
        rows.append({"kind": kind, "gain": values.mean(), "min": values.min(),
                     "max": values.max(), "seeds": len(values),
                     "copies": _said(everywhere(str(kind), values, "above", CRITERIA["copies"],
                                                fewest=FEWEST))})
    return pd.DataFrame(rows)


def telling(scores: pd.DataFrame) -> pd.DataFrame:
    """Does a pair's code tell a label? A row per kind, label, pair and layer.

    scores  rows of `DecodingResult.table` with columns kind and seed
    """
    rows = []
    for key, block in _accuracy(scores).groupby(["kind", "label", "pair", "layer"], sort=False):
        assert isinstance(key, tuple)
        code = where(block, features="code").set_index("seed")
        parts = []
        row: dict[str, Any] = dict(zip(("kind", "label", "pair", "layer"), key, strict=True))
        row |= {"code": code["value"].mean(), "min": code["value"].min(),
                "max": code["value"].max()}
        for control in CONTROLS:
            other = (code["chance"] if control == "chance" else
                     where(block, features=control).set_index("seed")["value"].reindex(code.index))
            row[control] = other.mean()
            parts.append(difference(control, code[["value", "low", "high"]].sub(other, axis=0),
                                    CRITERIA["tells"], fewest=FEWEST))
        rows.append({**row, "residual": where(block, features="residual")["value"].mean(),
                     "seeds": len(code),
                     "tells": _said(*parts) if bool(
                         (code["chance"] < CRITERIA["varies"]).all()) else UNDECIDED})
    return pd.DataFrame(rows)


def kinds_apart(scores: pd.DataFrame) -> pd.DataFrame:
    """Whose code of the induction pair gains more by training? A row per label and two kinds.

    gain a, gain b  score less that of the initial weights, mean over layers and seeds
    more            the kind whose code gains more, or `undecided`
    """
    table = where(_accuracy(scores), pair=INDUCTION)
    wide = table[table["features"].isin(["code", "untrained"])].pivot(
        index=["label", "kind", "seed", "layer"], columns="features", values="value")
    gains = (wide["code"] - wide["untrained"]).groupby(["label", "kind", "seed"],
                                                       sort=False).mean()
    rows: list[dict[str, Any]] = []
    for label, of_label in gains.groupby("label", sort=False):
        kinds = of_label.index.get_level_values("kind").unique()
        for one, other in combinations(kinds, 2):
            a, b = (of_label.xs(kind, level="kind") for kind in (one, other))
            more = separate(str(label), a, b, CRITERIA["tells"], fewest=FEWEST).verdict
            rows.append({"label": label, "a": one, "b": other, "gain a": a.mean(),
                         "gain b": b.mean(),
                         "more": {"agrees": one, "differs": other}.get(more, UNDECIDED)})
    return pd.DataFrame(rows, columns=["label", "a", "b", "gain a", "gain b", "more"])


def moving(pairs: pd.DataFrame) -> pd.DataFrame:
    """Does writing bring the source's answer? A row per kind and place.

    pairs  rows of `InterventionResult.table` of minimal pairs with columns kind and seed
    """
    if pairs.empty:
        return pd.DataFrame(columns=["kind", *PLACE, "flip", "control", "least n",
                                     "brings"])
    rows = []
    flips = where(pairs, metric="flip")
    for key, block in flips.groupby(["kind", *PLACE], sort=False):
        assert isinstance(key, tuple)
        source, same = (where(block, patch=patch).set_index("seed") for patch in ("interchange",
                                                                                  "control"))
        same = same.reindex(source.index)
        least = min(source["n"].min(), same["n"].min())
        rows.append({
            **dict(zip(("kind", *PLACE), key, strict=True)), "flip": source["value"].mean(),
            "min": source["value"].min(), "max": source["value"].max(),
            "control": same["value"].mean(), "least n": int(least), "seeds": len(source),
            "brings": UNDECIDED if least < CRITERIA["instances"] else _said(difference(
                "control", apart(source, same), CRITERIA["least"], fewest=FEWEST))})
    return pd.DataFrame(rows)


def statements(
    comparisons: pd.DataFrame, counted: pd.DataFrame, streams: pd.DataFrame
) -> pd.DataFrame:
    """Operation or answer? A row per kind, place and statement.

    comparisons  of `InterventionResult`, all models, with columns task, kind and run; or empty
    counted      a row per model: kind, seed and `known`, instances that count
    streams      rows of `DecodingResult.table` with columns part, kind and seed: is the class of
                 the answer in the residual stream of the query?
    """
    chosen = _counted(comparisons, counted["known"], counted["kind"])
    if chosen.empty:
        return pd.DataFrame(
            columns=["task", "kind", *PLACE, "statement", "met", "met in these layers"])
    varied = streams[streams["n_classes"] >= LEAST_CLASSES]
    found = met(chosen, answer_entering(varied) if len(varied) else {})
    return found[found["statement"] != UNASKED]


def places_said(comparisons: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """Do codes say from where to copy? A row per kind, place and statement
    (`PLACE_STATEMENTS`).

    comparisons  as in `statements`, of sources that copy from elsewhere; or empty
    counted      a row per model: kind, seed and `known elsewhere`, instances that count
    """
    chosen = _counted(comparisons, counted["known elsewhere"], counted["kind"])
    if chosen.empty:
        return pd.DataFrame(columns=["task", "kind", *PLACE, "statement", "met"])
    found = met(chosen)
    return found.assign(statement=found["statement"].map(PLACE_STATEMENTS))[
        [name for name in map(str, found)
         if name != "met in these layers" and "entering" not in name]]


def _counted(comparisons: pd.DataFrame, known: pd.Series, kind: pd.Series) -> pd.DataFrame:
    """Return the comparisons of those kinds of which enough instances count in enough seeds."""
    enough = known.groupby(kind, sort=False).agg(["min", "size"])
    asked = enough[(enough["min"] >= CRITERIA["instances"])
                   & (enough["size"] >= CRITERIA["least_seeds"])].index
    return comparisons[comparisons["kind"].isin(asked)] if len(comparisons) else comparisons


def _accuracy(scores: pd.DataFrame) -> pd.DataFrame:
    return where(scores, metric="accuracy")
