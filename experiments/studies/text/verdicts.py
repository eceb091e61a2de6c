"""Where are the criteria met? They are applied to the tables of all models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pandas as pd

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
from latentcode.probes.common.results import where
from latentcode.tasks.text.patterns import INDUCTION

YES, NO, UNDECIDED, NOT_ASKED = "yes", "no", "undecided", "not asked"
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
    return pd.DataFrame(rows)


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


def sentences(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, str, str]]:
    """Yield kind, question and what is found, in words with the numbers."""
    counted = tables["runs"]
    for row in tables["copying"].to_dict("records"):
        yield row["kind"], "does it copy?", (
            f"{row['copies']}: repeated pairs cost {row['gain']:.2f} nats less "
            f"({row['min']:.2f} to {row['max']:.2f})")
    for kind, block in where(tables["telling"], pair=INDUCTION).groupby("kind", sort=False):
        for label, of_label in block.groupby("label", sort=False):
            best = of_label.sort_values("code").iloc[-1]
            yield str(kind), f"does the induction pair's code tell `{label}`?", (
                f"{_layers(of_label, 'tells')}; highest {best['code']:.2f} in layer "
                f"{best['layer']} (untrained {best['untrained']:.2f}, shuffled "
                f"{best['shuffled']:.2f}, constant {best['chance']:.2f}, residual stream "
                f"{best['residual']:.2f})")
    for kind, block in tables["moving"].groupby("kind", sort=False):
        for site, scope, title in (("code", "pair", "the pair's code"), ("code", "row", "its row"),
                                   ("code", "everything", "all codes"),
                                   ("value", "everything", "all values")):
            own = where(block, site=site, scope=scope)
            question = f"does writing {title} bring the source's answer?"
            if len(own) and own["least n"].max() < CRITERIA["instances"]:
                yield str(kind), question, (
                    f"{UNDECIDED}: {own['least n'].max()} minimal pairs count whose control "
                    f"counts, too, {CRITERIA['instances']} being asked for")
            elif len(own):
                most = own.sort_values("flip").iloc[-1]
                yield str(kind), question, (
                    f"{_layers(own, 'brings', 'layers')}; most {most['flip']:.2f} "
                    f"(control {most['control']:.2f}) in {most['layers']}")
    for kind, of_kind in counted.groupby("kind", sort=False):
        own = where(tables["statements"], kind=kind)
        # That codes and values of all layers bring the answer is no finding.
        own = own[own["met"].astype(bool) & (own["site"] != "code+value")] if len(own) else own
        here = own["met in these layers"].astype(bool)
        yield str(kind), "operation or answer?", (
            f"{NOT_ASKED}: {_counting(of_kind['known'])}"
            if kind not in set(tables["statements"]["kind"])
            else f"met in these layers: {_places(own[here])}; met where the answer may be there "
                 f"already: {_places(own[~here])}")
    for kind, of_kind in counted.groupby("kind", sort=False):
        own = where(tables["places"], kind=kind)
        own = own[own["met"].astype(bool) & (own["site"] != "code+value")] if len(own) else own
        known = of_kind["known elsewhere"]
        yield str(kind), "sources that copy from elsewhere: from where, or what?", (
            f"{NOT_ASKED}: {_counting(known)}" if kind not in set(tables["places"]["kind"])
            else f"met: {_places(own)}")


def _counting(known: pd.Series) -> str:
    """Say how many instances count: `4 to 338 instances count, 3 seeds`."""
    least, most, n = known.min(), known.max(), len(known)
    return (f"{least} to {most} instances count, " if least < most else f"{least} instances count, "
            ) + ("1 seed" if n == 1 else f"{n} seeds")


def _places(rows: pd.DataFrame) -> str:
    """Say where each criterion is met: `carries the answer (value, everything, layers 0,1)`."""
    def listed(of: pd.DataFrame) -> str:
        return "; ".join(f"{r.site}, {r.scope}, layers {r.layers}" for r in of.itertuples())

    return "; ".join(f"{statement} ({listed(of)})"
                     for statement, of in rows.groupby("statement", sort=False)) or "nothing"


def _layers(table: pd.DataFrame, column: str, layers: str = "layer") -> str:
    """Say of each verdict in which layers it stands: `yes in 2, 3; undecided in 1`."""
    return "; ".join(f"{said} in {', '.join(f'{x}' for x in block[layers])}" if len(
        table) > 1 else str(said) for said, block in table.groupby(column, sort=False))


def _accuracy(scores: pd.DataFrame) -> pd.DataFrame:
    return where(scores, metric="accuracy")
