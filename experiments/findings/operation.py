"""Where does the operation travel? Codes and values at the context, the operands, the response.

    python -m latentcode.experiments.findings.operation RUN ... --out results/operation
    python -m latentcode.experiments.findings.operation RUN ... --published --out results/published

Problems. A *base* applies operation A to operands x, and its answer is A(x). What the *source*
computes at a place is written into the base, and the new answer falls into one class: `base` A(x),
`operation` B(x), `operands` A(x'), `answer` B(x'), `else`. Bases count where the four answers
differ and the model gives all four to the problems themselves.

Sources. `operation+operands` has another operation and other operands in one feature, so that the
classes can be told apart; with `+rest` it is another problem altogether. Controls are sources
without the operation: `operands`, `operands+rest` (operation A, other operands), `interchange`
(operation B alone), and `unrelated` (a third operation). Mean codes of a rule have the means of the
base's rule, of a third rule and of a random group of training problems as controls.

Directions. Sum is one of the two rules of every natural pair of SRAVEN, so both directions are
measured, each from as many bases drawn: *to sum* and *from sum*.

Statements. `operation.yaml`, committed before the runs that decide, names each statement's place,
layers, class, source and controls. A statement is met by a kind of attention where, in both
directions, the paired difference of the rate of its class from that of every control has a 95 %
interval above 0 (clustered by combination) in every run that counts and a mean over runs of at
least `least`; refuted where one of the differences has an interval above 0 in no run; otherwise, or
with fewer than `fewest` runs, undecided. What would refute a statement on codes at the context
although it is met stands beside it: codes of all other queries, and the context's inputs exchanged
while all codes are held (`frozen`).

What it measures is what `experiments/results/context` of v1.0.0 has, which was made at commit
3717fcf0 with the same patches and seeds: on seed 3 of HYLA all 210 rates are equal to the four
digits of that commit's table, and so are the paired differences with their intervals. Differences
from what would refute a statement, and from means of other rules, have wider intervals here: they
are not paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import tyro
import yaml

import latentcode as lc
from latentcode.models.config import kind_of
from latentcode.probes.interventions import Patch, intervene_model
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals

CRITERIA = Path(__file__).with_suffix(".yaml")
SOURCES: Mapping[str, str] = {
    "operation": "interchange", "mean": "class_mean", "mean_base": "class_mean_base",
    "mean_third": "class_mean_third", "mean_shuffled": "class_mean_group"}
"""Sources of the criteria that `lc.Patch` calls otherwise."""
CLASSES: Mapping[str, str] = {"copied": "answer"}
"""Classes that the criteria call otherwise."""
BOTH = "operation+operands"
PLACE = ("site", "scope", "layers")
ELSEWHERE, FROZEN = "another place", "frozen codes"
Directions = Mapping[str, Any]


@dataclass(frozen=True)
class Statement:
    """What codes or values at a place may be said to carry, and what is compared for it."""

    name: str
    outcome: str
    """Class of the answers that is counted."""
    patch: Patch
    controls: tuple[Patch, ...]
    """Patches at the same place from sources without what is claimed."""
    refuters: Mapping[str, Patch]
    """Patches elsewhere that should not do the same."""
    fewest: int
    """Runs of a kind without which nothing is decided."""
    leave_out: tuple[str, ...] = ()
    """Runs on which the place was chosen, which do not count for it."""

    @property
    def patches(self) -> tuple[Patch, ...]:
        return (self.patch, *self.controls, *self.refuters.values())


def read_criteria(published: bool) -> dict[str, Any]:
    """Return the criteria; of the published size with what is stated for it alone."""
    criteria: dict[str, Any] = yaml.safe_load(CRITERIA.read_text(encoding="utf-8"))
    own = criteria.pop("published")
    if not published:
        return criteria
    beyond = {name: {**rule, "fewest": own["fewest_others"], "leave_out": own["looked_at"]}
              for name, rule in own["words"].items()}
    return {**criteria, **own, "words": {**criteria["words"], **beyond}}


def statements(criteria: Mapping[str, Any], places: Sequence[str]) -> Iterator[Statement]:
    """Yield the statements that can be made of a task with some places."""
    for name, rule in criteria["words"].items():
        site, place, layers = (rule["patch"][key] for key in ("site", "place", "layers"))
        if place.removeprefix("outside ") not in places:
            continue
        where = f"within {place}" if site == "value" else place

        def at(source: str, scope: str = where, site: str = site,
               layers: Sequence[int] = tuple(layers)) -> Patch:
            return Patch(SOURCES.get(source, source), scope, tuple(layers), site)

        refuters = {} if (site, place) != ("code", "context") or "mean" in rule["source"] else {
            ELSEWHERE: at(BOTH, f"outside {place}"),
            FROZEN: at("frozen", place, "residual", (0,))}
        yield Statement(name, CLASSES.get(rule["class"], rule["class"]), at(rule["source"]),
                        tuple(at(source) for source in rule["against"]), refuters,
                        rule.get("fewest", criteria["fewest"]), tuple(rule.get("leave_out", ())))


def directions(run: lc.Run) -> Directions:
    """Return the bases and sources of each direction; fuzzy logic has one, called `both`."""
    pairs = lc.make_counterfactuals(lc.make_task(run.config.task))
    if not isinstance(pairs, SravenCounterfactuals):
        return {"both": pairs}
    return {"to sum": pairs.between(source_labels=("sum",)),
            "from sum": pairs.between(base_labels=("sum",))}


def least_known(run: lc.Run) -> float:
    """Return the share right, on held-out problems, of the rule that a model knows worst.

    Fuzzy logic has too many functions for a share of each: it counts as known.
    """
    metrics = run.newest_metrics()
    rules = metrics[(metrics["split"] == "ood")
                    & metrics["metric"].str.startswith("feature_accuracy[")]
    return float(rules["mean"].min()) if len(rules) else 1.0


def measure(
    run: lc.Run, criteria: Mapping[str, Any], n: int, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Write every source at every place of the statements.

    Args:
        run: A trained model.
        criteria: As `read_criteria` returns them.
        n: Bases drawn in each direction.
        seed: Of bases and bootstrap.

    Returns:
        `rates`, a row per direction, patch and class with its interval, and `differences`, a row
        per direction, statement and control: the paired difference with its interval.
    """
    model, rates, differences = run.load_model(), [], []
    knows = least_known(run) >= criteria["knows_rules"]
    for direction, pairs in directions(run).items():
        asked = list(statements(criteria, pairs.places))
        patches = list(dict.fromkeys(patch for one in asked for patch in one.patches))
        result = intervene_model(
            model, pairs, patches, n=n, seed=seed, batch_size=100,
            n_reference=criteria["reference_problems"])
        known = result.settings["n_known"]
        named = {"kind": kind_of(run.config.model), "run": run.name, "direction": direction,
                 "known": known, "counts": knows and known >= criteria.get("least_bases", 0)}
        rates.append(result.table.assign(**named))
        differences += [{**named, **row} for one in asked
                        for row in compared(one, result.contrasts.table, result.table)
                        if run.name not in one.leave_out]
    return {"rates": pd.concat(rates, ignore_index=True), "differences": pd.DataFrame(differences)}


def compared(
    statement: Statement, contrasts: pd.DataFrame, rates: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """Yield a statement's difference from each control, and from what would refute it.

    Sources at one place are paired over the same bases. Where the result has no paired difference
    (means of a rule, patches elsewhere) the interval reaches from the low end of one rate less the
    high end of the other to the reverse, which is wider.
    """
    others = {patch.named: patch for patch in statement.controls} | dict(statement.refuters)
    mine = rows_of(rates, statement.patch, metric=statement.outcome).iloc[0]
    for name, patch in others.items():
        paired = rows_of(contrasts, statement.patch, against=patch.named,
                         **{"class": statement.outcome})
        if len(paired) and patch in statement.controls:
            value, low, high = paired.iloc[0][["value", "low", "high"]]
        else:
            other = rows_of(rates, patch, metric=statement.outcome).iloc[0]
            value, low, high = (mine["value"] - other["value"], mine["low"] - other["high"],
                                mine["high"] - other["low"])
        yield {"statement": statement.name, "against": name, "refuter": name in statement.refuters,
               "value": float(value), "low": float(low), "high": float(high)}


def rows_of(table: pd.DataFrame, patch: Patch, **entries: str) -> pd.DataFrame:
    """Return the rows of a table of rates or contrasts that a patch and entries name."""
    wanted = {"patch": patch.named, "site": patch.site, "scope": str(patch.where),
              "layers": ",".join(map(str, patch.layers)), **entries}
    return table[(table[list(wanted)].astype(str) == pd.Series(wanted)).all(axis=1)]


def verdicts(differences: pd.DataFrame, criteria: Mapping[str, Any]) -> pd.DataFrame:
    """Return the verdict of every statement and kind, over the runs that count."""
    counted = differences[differences["counts"]]
    # A run counts where it does in both directions.
    both = counted.groupby("run")["direction"].nunique() == differences["direction"].nunique()
    counted = counted[counted["run"].isin(both[both].index)]
    fewest = {name: rule.get("fewest", criteria["fewest"])
              for name, rule in criteria["words"].items()}
    rows = []
    for (kind, name), block in counted.groupby(["kind", "statement"], sort=False):
        asked, beyond = block[~block["refuter"]], block[block["refuter"]]
        rows.append({
            "kind": kind, "statement": name, "runs": block["run"].nunique(),
            "verdict": verdict(asked, criteria["least"], fewest[str(name)]),
            **{against: verdict(part, criteria["least"], fewest[str(name)])
               for against, part in beyond.groupby("against", sort=False)},
            "smallest mean": asked.groupby(["direction", "against"])["value"].mean().min(),
            "smallest low": asked["low"].min()})
    return pd.DataFrame(rows)


def verdict(differences: pd.DataFrame, least: float, fewest: int) -> str:
    """Return `met`, `refuted` or `undecided` of a row per run, direction and control."""
    if differences["run"].nunique() < fewest:
        return "undecided"
    by_control = differences.groupby(["direction", "against"])
    if bool((by_control["low"].max() <= 0.0).any()):
        return "refuted"
    met = (by_control["low"].min() > 0.0) & (by_control["value"].mean() >= least)
    return "met" if bool(met.all()) else "undecided"


def over_runs(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the mean, smallest and largest rate over runs, of the means of both directions."""
    by = ["kind", *PLACE, "patch", "metric"]
    each = rates[rates["counts"]].groupby([*by, "run"], sort=False)["value"].mean()
    return each.groupby(by, sort=False).agg(["mean", "min", "max", "size"]).reset_index()


def main(runs: tyro.conf.Positional[tuple[str, ...]], out: Path, published: bool = False,
         n: int = 400, seed: int = 0) -> None:
    """Measure runs, judge the statements, write `rates.csv`, `differences.csv`, `verdicts.csv`.

    Args:
        runs: Folders of runs, or models of the zoo.
        out: Folder of the tables.
        published: Judge by the criteria of the published size.
        n: Bases drawn in each direction.
        seed: Of bases and bootstrap.
    """
    out.mkdir(parents=True, exist_ok=True)
    criteria = read_criteria(published)
    measured = [measure(lc.load_run(run), criteria, n, seed) for run in runs]
    rates, differences = (pd.concat([of_run[name] for of_run in measured], ignore_index=True)
                          for name in ("rates", "differences"))
    judged = verdicts(differences, criteria)
    for name, table in {"rates": rates, "over_runs": over_runs(rates),
                        "differences": differences, "verdicts": judged}.items():
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.4g")
    print(judged.to_string(index=False))


if __name__ == "__main__":
    tyro.cli(main)
