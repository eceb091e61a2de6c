"""Fig. A8: codes of softmax attention after 40 M instances: single ones, means, their cosines.

`similarity` has the mean codes, some single ones, and the cosines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from latentcode.experiments.paper.reproduction import (
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
    value_evidence,
)
from latentcode.experiments.paper.wording import caveat, n_runs, nothing, titled
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import LabelSums, percentile_interval, resample
from latentcode.probes.similarity import SimilarityResult, similarity
from latentcode.runs import Run
from latentcode.subjects import extract
from latentcode.tasks.sraven.task import RULES

SHOWS = by_preset("sraven", kinds="kind=softmax", paper=("training.steps=312500",),
                  small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 300}
MEAN_CODE = "heads in use by the mean code"
SHARE = "share of codes with two heads in use or more"
SINGLE_CODE = "heads in use by single codes"
ALL = "(all)"
N_BOOTSTRAP = 1_000


def measure(work: Work) -> Findings:
    """Return how many heads codes use in the last layer, and the codes themselves."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    if not runs:
        return nothing("softmax attention on SRAVEN" + (
            " with 40 M instances" if work.preset == "paper" else ""))
    n = N[work.preset]
    used = pd.concat([work.table(run, heads_in_use, n=n).assign(**about(member, run))
                      for member, run in runs], ignore_index=True)
    last = used[used["layer"] == used["layer"].max()]
    of_rules = last[(last["measure"] == MEAN_CODE) & (last["class"] != ALL)]
    fewest = of_rules.loc[of_rules.groupby(["run", "split_seed", "seed"])["value"].idxmin()]
    share = where(last, measure=SHARE, **{"class": ALL})
    rows = {"figA8-several-heads-per-rule": fewest, "figA8-several-heads-per-code": share}
    single = where(last, measure=SINGLE_CODE, **{"class": ALL})["value"].mean()
    member, first = runs[0]
    similar = work.measured(first, similarity, SimilarityResult, label="rule", n=n)
    return Findings(
        summary=f"In the last layer of softmax attention the mean code of the rule that has fewest "
                f"uses {fewest['value'].mean():.1f} of {first.config.model.n_heads} heads "
                f"({n_runs(share)}), single codes {single:.1f} on average; "
                f"{share['value'].mean():.0%} of codes use two or more.",
        tables={"heads_in_use": used, "mean_codes": _last(similar, similar.means).assign(
            **about(member, first))},
        figures={"figA8": _drawn(similar, titled([first]))},
        evidence={claim.id: value_evidence(rows[claim.id]) for claim in work.claims},
        notes=("Heads in use: (sum of |a|) squared over the sum of squares, 1 where one head does "
               "it all.", "The picture is of the first run, the heads in use of all.",
               *caveat(run for _, run in runs)),
        raw={"codes": _last(similar, similar.samples)[
            ["instance", "class", "component", "value"]].round(4)})


def heads_in_use(
    run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu"
) -> pd.DataFrame:
    """(sum_h |a_h|)^2 / sum_h a_h^2: of the mean code of each rule, and of single codes.

    A row per layer, `measure` (`MEAN_CODE`, `SINGLE_CODE` the mean over codes, `SHARE`) and `class`
    (a rule, or `ALL`): `value` with the 95 % interval over combinations, of the paper's pair on
    held-out combinations.
    """
    codes = extract(run, split="ood", n=n, seed=seed, device=device)
    pair, = (pair.name for pair in codes.pairs)
    target = make_target(codes, codes, "rule", pair)
    names = [ALL, *map(str, target.classes)]
    truth = np.column_stack([np.ones(len(codes), dtype=bool), target.train])
    clusters = combination_clusters(codes)
    weights = _weights(clusters, seed)

    def rows() -> Iterator[dict[str, Any]]:
        for layer in codes.layers:
            x = codes.select(layer=layer, pair=pair).astype(np.float64)
            used = in_use(x)
            of_codes = LabelSums.of(np.column_stack([used, used >= 2.0]), truth, clusters)
            averages = _with_whole(of_codes, weights)
            means = in_use(_with_whole(LabelSums.of(x, truth, clusters), weights))
            for measure, values in ((MEAN_CODE, means), (SINGLE_CODE, averages[..., 0]),
                                    (SHARE, averages[..., 1])):
                yield from ({"layer": layer, "measure": measure, "class": name}
                            | _with_interval(values[:, c], weights)
                            for c, name in enumerate(names))

    return pd.DataFrame(list(rows()))


def in_use(x: np.ndarray) -> np.ndarray:
    """Return (sum_h |a_h|)^2 / sum_h a_h^2 of codes x [..., H], [...]; NaN of a zero."""
    size = np.abs(x)
    largest = size.max(axis=-1, keepdims=True)
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    size = size / np.where(largest > 0, largest, np.nan)
    return np.asarray(size.sum(axis=-1) ** 2 / np.square(size).sum(axis=-1))


def _weights(clusters: np.ndarray, seed: int) -> np.ndarray:
    return resample(int(clusters.max()) + 1, N_BOOTSTRAP, np.random.default_rng(seed))


def _with_whole(sums: LabelSums, weights: np.ndarray) -> np.ndarray:
    """Return means [1 + replicate, class, d], first of all instances as they are."""
    return np.concatenate([sums.means()[None], sums.resampled(weights)])


def _with_interval(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return the first of values [1 + replicate], and the interval of the others."""
    low, high = percentile_interval(values[1:], weights.shape[1])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def _last(similar: SimilarityResult, table: pd.DataFrame) -> pd.DataFrame:
    return where(table, layer=max(similar.settings["layers"]), features="code")


def _drawn(similar: SimilarityResult, title: str) -> Figure:
    samples, means = (_last(similar, table) for table in (similar.samples, similar.means))
    cosines = where(_last(similar, similar.cosines), centring="raw")
    samples = samples.assign(name=samples["class"] + " #" + samples["instance"].astype(str))
    rules = [rule for rule in RULES if rule in set(means["class"])]
    single = samples.pivot(index="name", columns="component", values="value")
    mean = means.pivot(index="class", columns="component", values="value").loc[rules]
    alike = cosines.pivot(index="row", columns="column", values="value").loc[rules, rules]
    shown = [("A  single codes", single.set_axis([name.split(" #")[0] for name in single.index]),
              signed_norm(single.to_numpy())),
             ("B  mean codes", mean, signed_norm(mean.to_numpy())),
             ("C  cosine of mean codes", alike, TwoSlopeNorm(0.0, -1.0, 1.0))]
    with panels(1, len(shown), 10.5, 3.4, title) as (figure, grid):
        for axes, (name, matrix, norm) in zip(grid[0], shown, strict=True):
            is_cosine = matrix is alike
            drawn = heat_map(axes, matrix, norm, numbers=is_cosine, fontsize=6.5,
                             rotation=90.0 if is_cosine else 0.0)
            axes.set_title(name, loc="left")
            axes.set_xlabel("" if is_cosine else "head")
            figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02)
    return figure


REPRODUCTIONS = (Reproduction(
    "figA8",
    "Codes of softmax attention: single ones (A), means per rule (B), cosines of means (C)",
    SHOWS, measure),)
