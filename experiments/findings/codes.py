"""What do codes tell, and what do they cause? Every number stands beside its controls.

    python -m latentcode.experiments.findings.codes RUN ... --out results/codes

Told. A logistic probe reads labels (the rule of SRAVEN, the terms of fuzzy logic) off the code of
a pair, layer by layer; it is fitted on training combinations, and scored on held-out ones. Beside
it stand the same probe on the code of the untrained model, on shuffled labels, and on the residual
stream that enters the layer at the query. What counts is the paired difference from each of them,
with a 95 % interval clustered by combination. A code *tells* a label in a layer where every
difference has an interval above 0 in every run of a kind, and a mean of at least `LEAST`; it does
not where one has such an interval in no run; otherwise, or with fewer than `FEWEST` runs, this is
undecided. A code that tells less than the residual stream may hold nothing of its own.

Caused. The code of a minimal pair's source, which differs in one rule or term, is written into the
base: the pair's own code, the row of the answering query, and all codes, and values in their place.
An answer *flips* if it becomes the source's. The control is a source with the same rule: of its
codes no flip can be due to the rule. Both rates stand side by side, and how many answers stay.

Over runs. Distances between the mean codes of labels are compared with distances between the tasks
(topography, Spearman's rho), and codes of the first two runs of a kind with each other (alignment).

The study of version 1.0 that this follows is frozen in `experiments/results/codes`; its nine runs
are not kept. On seed 3 of HYLA (`sraven_confirm`, `--n 2048`) probes read the rule off the code of
layer 3 in 0.54 of held-out problems, as the tables of `experiments/results/context` had it at
commit 3717fcf0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import tyro

import latentcode as lc
from latentcode.errors import TooFewCountError
from latentcode.experiments.findings.operation import verdict
from latentcode.models.config import kind_of

LEAST, FEWEST = 0.10, 3
"""The smallest mean difference that is enough, and the runs without which nothing is decided."""
CONTROLS = ("untrained", "shuffled", "residual")
SCOPES = ("pair", "row", "everything")
RATES = ("flip", "unchanged")


def patches(n_layers: int) -> list[lc.Patch]:
    """Return the patches of a run: source and control, codes by scope and all values.

    In the upper half of the layers and in all of them.
    """
    every = tuple(range(n_layers))
    places = [(scope, "code") for scope in SCOPES] + [("everything", "value")]
    return [lc.Patch(source, scope, layers, site) for scope, site in places
            for layers in dict.fromkeys((every[n_layers // 2:], every))
            for source in ("interchange", "control")]


def told(
    run: lc.Run, *, n: int, pairs: Sequence[str] | None = None, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Decode labels from the codes of a run.

    Args:
        run: A trained model.
        n: Problems that probes are fitted on, and as many held-out ones.
        pairs: Pairs of query and key; default: those of the paper.
        seed: Of problems, probes and bootstrap.

    Returns:
        `scores`, of codes and controls, and `differences` of the code from each control.
    """
    result = lc.decode(run, pairs=pairs, n_train=n, n_heldout=n, seed=seed)
    name = {"kind": kind_of(run.config.model), "run": run.name}
    differences = result.contrasts.table
    return {"scores": result.table.assign(**name),
            "differences": differences[differences["features"] == "code"].assign(**name)}


def caused(run: lc.Run, *, n: int, seed: int = 0) -> pd.DataFrame:
    """Return the rates at which written codes and values flip answers, beside their controls.

    A row per place: `flip` and `unchanged` of the source and of the control, each with its
    interval and how many problems count. No row for a model that answers too few of them.
    """
    try:
        result = lc.intervene(run, interventions=patches(run.config.model.n_layers), n=n, seed=seed,
                              factorial=False)
    except TooFewCountError as error:
        print(f"{run.name} is not patched: {error}")
        return pd.DataFrame()
    table = result.table[result.table["metric"].isin(RATES)]
    place = ["site", "scope", "layers"]
    wide = table.assign(rate=table["metric"] + " " + table["patch"]).pivot_table(
        index=place, columns="rate", values=["value", "low", "high", "n"], sort=False)
    wide.columns = wide.columns.map(
        lambda name: f"{name[1]} {name[0]}".removesuffix(" value"))
    return wide.reset_index().assign(kind=kind_of(run.config.model), run=run.name)


def verdicts(differences: pd.DataFrame) -> pd.DataFrame:
    """Return, per kind, layer, pair and label, whether the code tells it, over runs.

    `against the model's own beginnings` are the untrained model and shuffled labels alone;
    `against all` has the residual stream, too.
    """
    rows = []
    metric = differences["quantity"].iloc[0]  # the headline of the task
    asked = differences[(differences["quantity"] == metric)
                        & differences["against"].isin(CONTROLS)].assign(direction="")
    for key, block in asked.groupby(["kind", "label", "pair", "layer"], sort=False):
        assert isinstance(key, tuple)
        beginnings = block[block["against"] != "residual"]
        rows.append({
            **dict(zip(("kind", "label", "pair", "layer"), key, strict=True)),
            "runs": block["run"].nunique(),
            "against untrained and shuffled": verdict(beginnings, LEAST, FEWEST),
            "against all": verdict(block, LEAST, FEWEST),
            **block.groupby("against", sort=False)["value"].mean().add_prefix("above ")})
    return pd.DataFrame(rows)


def over_runs(runs: Sequence[lc.Run], *, n: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return topography over all runs, and alignment of the first two runs of each kind.

    Without two runs of a kind there is no alignment.
    """
    by_kind: dict[str, list[lc.Run]] = {}
    for run in runs:
        by_kind.setdefault(kind_of(run.config.model), []).append(run)
    tables = {"topography": lc.topography(runs, n=n, seed=seed).table}
    first = [run for same in by_kind.values() if len(same) > 1 for run in same[:2]]
    if first:
        tables["alignment"] = lc.align(first, n_train=n, n_heldout=n, seed=seed).summary()
    return tables


def measure(
    runs: Sequence[lc.Run], *, n: int, pairs: Sequence[str] | None = None, seed: int = 0
) -> Mapping[str, pd.DataFrame]:
    """Return the tables of the study, by name."""
    decoded = [told(run, n=n, pairs=pairs, seed=seed) for run in runs]
    scores, differences = (pd.concat([of_run[name] for of_run in decoded], ignore_index=True)
                           for name in ("scores", "differences"))
    flips = pd.concat([caused(run, n=n, seed=seed) for run in runs], ignore_index=True)
    return {"scores": scores, "differences": differences, "told": verdicts(differences),
            "caused": flips, **over_runs(runs, n=n, seed=seed)}


def main(runs: tyro.conf.Positional[tuple[str, ...]], out: Path, n: int = 4_096,
         pairs: tuple[str, ...] = (), seed: int = 0) -> None:
    """Measure runs and write the tables.

    Args:
        runs: Folders of runs, or models of the zoo.
        out: Folder of the tables.
        n: Problems that probes are fitted on, that they are scored on, and that are patched.
        pairs: Pairs of query and key; default: those of the paper.
        seed: Of all that is drawn.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = measure([lc.load_run(run) for run in runs], n=n, pairs=pairs or None, seed=seed)
    for name, table in tables.items():
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.4g")
    print(tables["told"].to_string(index=False))


if __name__ == "__main__":
    tyro.cli(main)
