"""What the study of the context found: rates, paired differences, and which criteria are met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.criteria import SAID
from latentcode.experiments.evidence.found import Found
from latentcode.experiments.evidence.keeping import Measured
from latentcode.experiments.evidence.rules import difference, together
from latentcode.experiments.paper.measuring.known_rules import least_known
from latentcode.experiments.studies.context.patches import (
    ANOTHER,
    BOTH,
    CONTEXT,
    SOURCES,
    planned,
)
from latentcode.models.config import kind_of
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.decoding.naming import parted
from latentcode.probes.interventions import Patch
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task

N_BOOTSTRAP = 1_000
WHERE = ("site", "scope", "layers")
"""Columns that name where is patched."""
OF_RUN = ("role", "task", "kind", "run", "seed")
"""Columns that name a run, and whether its numbers decide."""
NO_RULES = ("logic",)
"""Tasks whose labels are too many for a share of each: all of their runs count."""
Key = tuple[str, str, str, tuple[int, ...]]
"""Source (a key of `PATCHES`), site, scope and layers."""


@dataclass(frozen=True)
class Contrast:
    """One rate less another: of a class, from two patches of the same bases.

    statement, against  of the criteria
    """

    statement: str
    against: str
    name: str
    one: Key
    other: Key

    def row(self) -> dict[str, Any]:
        """Return the columns that name the contrast, by the first of the two patches."""
        _, site, scope, layers = self.one
        return {"statement": self.statement, "against": self.against, "class": self.name,
                "site": site, "scope": scope, "layers": _text(layers)}


def contrasts(known: Sequence[Key], role: str) -> list[Contrast]:
    """Return the contrasts of a role's criteria, of codes and of values, at all layers patched."""
    found = []
    for statement, rule in criteria_of(role)["statements"].items():
        site, place = rule["patch"]["site"], rule["patch"]["place"]
        scope = f"within {place}" if site == "value" else place
        source = SOURCES.get(rule["source"], rule["source"])
        for layers in dict.fromkeys(key[3] for key in known if key[:3] == (source, site, scope)):
            one = (source, site, scope, layers)
            others = {against: (SOURCES.get(against, against), site, scope, layers)
                      for against in rule["against"]}
            if (site, place) == ("code", "context") and source in (BOTH, *ANOTHER):
                others |= {"another place": (BOTH, site, f"outside {place}", layers),
                           "frozen codes": ("frozen", "residual", place, (0,))}
            found += [Contrast(statement, against, rule["class"], one, other)
                      for against, other in others.items() if other in known]
    return found


def key_of_patch(patch: Patch) -> Key:
    return patch.named, patch.site, str(patch.where), patch.layers


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return the tables of the study, by name.

    runs       every run, how well it knows its rules, and how many bases count in each direction
    rates      a row per run, direction and patch: the share of each class, with intervals
    over_runs  the mean, smallest and largest of these over the runs that count; direction `each`
               is the mean of the two
    contrasts  a row per run, direction, statement, layers and source that is compared with
    statements  what follows for every kind, at every set of layers: `statements`
    decoding   scores of probes: rule and answer, on held-out combinations
    separation, dimensions, sets, ranks, carried  of the runs that decide: see `inside`, `parts`
    """
    about = {run.id: described(run, role) for role, runs in found.runs.items() for run in runs}
    settings = found.plan.ask["patched"].settings
    rates, differences, counted = [], [], []
    for (run,), result in found.results["patched"]:
        task = make_counterfactuals(make_task(run.config.task))
        plan = planned(settings["patches"], task, run.config.task.name,
                       range(run.config.model.n_layers))
        assert isinstance(result, Measured)
        of_run, patched = about[run.id], result.tables["patched"]
        of_run["counts"] &= enough_bases(patched, of_run["role"])
        for direction, block in patched.groupby("direction", sort=False):
            name = {**of_run, "direction": direction}
            first = block.iloc[0]
            counted.append({**name, **{key: int(first[key]) for key in (
                "drawn", "counted", "known")}})
            one = _Direction(block, plan, settings["seed"], of_run["role"])
            rates += [{**name, **row} for row in one.rates()]
            differences += [{**name, **row} for row in one.differences()]
    rows, of = pd.DataFrame(rates), pd.DataFrame(differences)
    read = [result.table.assign(**about[run.id])
            for (run,), result in found.results.get("decoded", ())
            if isinstance(result, DecodingResult)]
    scores = pd.concat(read, ignore_index=True) if read else pd.DataFrame()
    return {"runs": pd.DataFrame(counted), "rates": rows, "over_runs": over_runs(rows),
            "contrasts": of, "statements": statements(of, entering(scores)),
            **({"decoding": scores} if read else {}),
            **{table: found.joined(asked, table)
               for asked, of_asked in (("looked", ("separation", "dimensions")),
                                       ("taken_apart", ("sets", "ranks")),
                                       ("carried", ("carried",)))
               if found.results.get(asked) for table in of_asked}}


def described(run: Run, role: str) -> dict[str, Any]:
    """Return the columns that name a run, with the rule that it knows worst.

    role  what its numbers are for: the name of its group
    """
    task = run.config.task.name
    rule, share = ("", 1.0) if task in NO_RULES else least_known(run)
    return {"role": role,
            "task": task, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed, "known worst": rule, "least right": share,
            "counts": share >= criteria_of(role)["knows_rules"]}


def enough_bases(patched: pd.DataFrame, role: str) -> bool:
    """Whether enough bases count in each direction: the model gives all four of their answers."""
    return bool(patched["known"].min() >= criteria_of(role).get("least_bases", 0))


def criteria_of(role: str) -> Mapping[str, Any]:
    """Return the criteria: of the published size which runs count is apart, and more is stated.

    What is stated there alone leaves out the runs that had been looked at.
    """
    if role != "published":
        return CONTEXT
    own = CONTEXT["published"]
    beyond = {name: {**rule, "leave_out": own["looked_at"], "fewest": own["fewest_others"]}
              for name, rule in own["statements"].items()}
    return {**CONTEXT, **own, "statements": {**CONTEXT["statements"], **beyond}}


class _Direction:
    """The bases of one run and direction, and whose answer each patch gave them."""

    def __init__(self, block: pd.DataFrame, plan: Sequence[Patch], seed: int, role: str) -> None:
        self.plan, self.seed, self.role = plan, seed, role
        n = int(block["number"].max()) + 1
        self.answers = np.full((n, len(plan)), -1)
        self.answers[block["number"], block["patch"]] = block["class"]
        self.combination = np.zeros(n, dtype=np.int64)
        self.combination[block["number"]] = block["combination"]
        self.column = {key_of_patch(patch): index for index, patch in enumerate(plan)
                       if patch.alpha == 1.0}

    def rates(self) -> Iterator[dict[str, Any]]:
        for patch, answers in zip(self.plan, self.answers.T, strict=True):
            counts = answers >= 0
            hits = answers[counts, None] == np.arange(len(CLASSES))
            means, low, high, n_clusters = mean_and_interval(
                hits.astype(float), self.combination[counts], N_BOOTSTRAP, self.seed)
            yield {"source": patch.named, "site": patch.site, "scope": patch.where,
                   "layers": _text(patch.layers),
                   "alpha": patch.alpha if patch.named.startswith("steer") else float("nan"),
                   "n": int(counts.sum()), "n_combinations": n_clusters,
                   **{f"{name}{end}": values[i] for i, name in enumerate(CLASSES)
                      for end, values in (("", means), (" low", low), (" high", high))}}

    def differences(self) -> Iterator[dict[str, Any]]:
        for contrast in contrasts(list(self.column), self.role):
            one, other = (self.answers[:, self.column[key]] for key in (
                contrast.one, contrast.other))
            both = (one >= 0) & (other >= 0)
            wanted = list(CLASSES).index(contrast.name)
            paired = (one[both] == wanted).astype(float) - (other[both] == wanted)
            mean, low, high, n_clusters = mean_and_interval(
                paired, self.combination[both], N_BOOTSTRAP, self.seed)
            yield {**contrast.row(), "value": float(mean), "low": float(low), "high": float(high),
                   "n": int(both.sum()), "n_combinations": n_clusters}


def over_runs(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rate of each class over the runs that count, with its `min` and `max`."""
    place = ["role", "task", "kind", "direction", "source", *WHERE, "alpha"]
    kept = rates[rates["counts"]]
    each = kept.groupby([*OF_RUN, *place[4:]], sort=False, dropna=False)[list(CLASSES)].mean()
    whole = pd.concat([kept, each.reset_index().assign(direction="each")], ignore_index=True)
    by_place = whole.groupby(place, sort=False, dropna=False)[list(CLASSES)]
    ends = [by_place.mean(), *(getattr(by_place, end)().add_suffix(f" {end}")
                               for end in ("min", "max")), by_place.size().rename("runs")]
    return pd.concat(ends, axis=1).reset_index()


def entering(scores: pd.DataFrame) -> dict[tuple[str, str, str, int], float]:
    """How well is the answer read from the context's streams that enter a layer, less the null?

    (role, task, kind, layer) -> balanced accuracy of the trained less that of the untrained model,
    the mean over the runs that count
    """
    if not len(scores):
        return {}
    read = scores[scores["counts"] & scores["features"].str.endswith("tokens.context")
                  & (scores["label"] == "answer") & (scores["metric"] == "balanced_accuracy")]
    by = parted(read).pivot_table(index=[*OF_RUN, "layer"], columns="model", values="value",
                                  dropna=False)
    over = (by["trained"] - by["untrained"]).groupby(["role", "task", "kind", "layer"]).mean()
    return {(str(row["role"]), str(row["task"]), str(row["kind"]), int(row["layer"])):
            float(row["over"]) for row in over.reset_index(name="over").to_dict("records")}


def statements(
    differences: pd.DataFrame,
    early: Mapping[tuple[str, str, str, int], float] | None = None,
) -> pd.DataFrame:
    """Return what follows from the contrasts, by the criteria.

    One row per role, task, kind, statement and layers: `verdict` (`met`, `refuted`, `undecided`) of
    the sources that are compared with, `but` (the refutations that a statement on the context does
    not pass), `runs` that count, `primary`, whether these are the layers that the criteria name,
    `answer entering first` and `last` (`entering`, of the layers that are patched), `met in these
    layers` (whether, of an operation, neither is above the bound, too; means need none, nor do
    places beyond the context), and for each direction and source the mean difference over the runs.
    """
    kept, rows = differences[differences["counts"]], []
    for key, block in kept.groupby(
            ["role", "task", "kind", "statement", *WHERE], sort=False):
        assert isinstance(key, tuple)
        named: dict[str, Any] = dict(
            zip(("role", "task", "kind", "statement", *WHERE), key, strict=True))
        rule = criteria_of(named["role"])["statements"][named["statement"]]
        block = block[~block["run"].isin(rule.get("leave_out", ()))]
        fewest = rule.get("fewest", CONTEXT["fewest"])
        asked = block[block["against"].isin(rule["against"])]
        beyond = {name: block[block["against"] == name] for name in CONTEXT["refuted_by"]}
        n_runs = asked["run"].nunique()
        found = verdict(asked, n_runs, fewest)
        layers = [int(layer) for layer in named["layers"].split(",")]
        reached = [(early or {}).get((named["role"], named["task"], named["kind"], layer))
                   for layer in (layers[0], layers[-1])]
        needs = (rule["class"] == "operation" and rule["patch"]["place"] == "context"
                 and not rule["source"].startswith("mean"))
        rows.append({
            **named, "primary": named["layers"] == _text(rule["patch"]["layers"]),
            "expected": named["kind"] in rule["expected"], "runs": n_runs,
            "verdict": found, "answer entering first": reached[0],
            "answer entering last": reached[1],
            "met in these layers": found == "met" and (not needs or all(
                over is not None and over <= CONTEXT["answer_not_there_yet"] for over in reached)),
            "but": "; ".join(f"{name}: {verdict(part, n_runs, fewest)}"
                             for name, part in beyond.items()
                             if len(part) and verdict(part, n_runs, fewest) != "met"),
            **{f"{direction}, against {against}": part["value"].mean()
               for (direction, against), part in block.groupby(
                   ["direction", "against"], sort=False)}})
    return pd.DataFrame(rows)


def verdict(asked: pd.DataFrame, n_runs: int, fewest: int) -> str:
    """Return `met`, `refuted` or `undecided` of a statement's contrasts (`context.yaml`).

    asked  a row per run, direction and source that is compared with: `value`, `low`, `high`
    """
    parts = [difference(", ".join(map(str, key)), part, CONTEXT["least"], fewest=1,
                        differs="nowhere above 0")
             for key, part in asked.groupby(["direction", "against"], sort=False)]
    return SAID[together(parts) if n_runs >= fewest else "undecided"]


def _text(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))
