"""What attribution found in several models: sentences, tables, a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentcode.figures.markdown import markdown_of
from latentcode.probes.attribution import AttributionResult
from latentcode.probes.attribution.result import LEAST_PLACES
from latentcode.probes.common.results import where, with_interval

Results = Mapping[str, AttributionResult]


def findings(results: Results) -> list[str]:
    """Return what the numbers say, a sentence or two per model and site."""
    said = []
    for name, result in results.items():
        for small in result.smallest.to_dict("records"):
            site = small["site"]
            r = where(result.shown, site=site, among="all", measure="pearson")
            both = " and ".join(f"{with_interval(row)} ({row.estimate})" for row in r.itertuples())
            n = r["n_places"].max()  # no row where there are too few places
            correlated = f"over {n} places the estimates correlate with real patches at {both}. "
            said.append(f"{name}, {site}s: {correlated if both else ''}{_set(result, small)}")
    return said


def _set(result: AttributionResult, small: Mapping[Any, Any]) -> str:
    rate, n = result.settings["rate"], where(result.curve, site=small["site"])["n"].iloc[0]
    everything = (f"All {small['n_places']} places bring the source's answer (`{rate}`) in "
                  f"{small['held_all']:.2f} of {n} instances")
    if not result.sought(small):
        return (f"{everything}, and of those that sets are chosen on in "
                f"{small['searched_all']:.2f}; no set is looked for.")
    if np.isnan(small["size"]):
        return f"{everything}; the first {result.settings['n_ranked']} do not bring 90 % of that."
    random = where(result.curve, site=small["site"], order="random")
    of_size = random[random["size"] >= small["size"]].iloc[0]
    return (f"{everything}; a set of {int(small['size'])} ({int(small['before_pruning'])} before "
            f"pruning), chosen on other instances, in {small['rate']:.2f} [{small['low']:.2f}, "
            f"{small['high']:.2f}], which is {result.share(small):.0%} of what all bring; random "
            f"sets of {of_size['size']} in {of_size['rate']:.2f}.")


def page(results: Results) -> str:
    """Return the page of the results, as Markdown."""
    settings = next(iter(results.values())).settings
    parts = [
        "# Which codes do answers hang on?",
        "Written by `python -m latentcode.experiments.studies.attribution`. One trained model per "
        "task and kind, one seed. Sources have another operation and other operands "
        f"(`{settings['source']}`); the instance, its minimal pair and these sources are answered "
        "rightly. A place is a layer, a query and a key (all heads) or, for values, a layer and a "
        "key. Positions are named by role. In SRAVEN a role is the panel and whether the token "
        "shows the feature that is asked about (`own`) or the next ones, whatever the slot; in "
        "fuzzy logic examples are exchangeable, and all of them are one role.",
        f"`path` takes the gradient at {settings['n_points']} points on the way from the "
        "instance's activations to the source's at all places of the site; `gradient` at the "
        "instance alone (attribution patching). Sets are made in the order of `path` on one half "
        "of the instances that are written into, and measured on the other: they bring "
        f"at least {settings['share']:.0%} of what all places bring on the half that chose them, "
        "and may bring less on the other. They are found greedily, so that smaller ones may do as "
        "much. None is looked for unless the interval of the rate of all places lies above "
        f"{settings['least_rate']}. Random sets are drawn among all places of the site, also "
        f"those whose estimates are exactly 0 ({_zeros(results)}): they show what a set of that "
        "size brings by itself, and not what a random choice among places that matter would.",
        "## What the numbers say", "\n".join(f"- {sentence}" for sentence in findings(results)),
        "## Estimates and real patches",
        "Correlation over places of the mean estimate and the mean effect of writing that place "
        "alone, with intervals clustered by combination. `strongest`: the largest estimates of "
        "either method in turn; `random`: others whose estimate is not exactly 0. "
        f"No correlation is shown over fewer than {LEAST_PLACES} places, as in fuzzy logic, where "
        "roles leave four or eight.",
        markdown_of(_correlations(results)),
        "## How the rate grows with the number of places", markdown_of(_curves(results))]
    for name, result in results.items():
        parts += [f"## {name}", " ".join(result.caveats), f"![maps]({name}/figure.png)",
                  f"![single patches, and sets of growing size]({name}/sets.png)"]
        sought = [small["site"] for small in result.smallest.to_dict("records")
                  if result.sought(small)]
        chosen = result.chosen[result.chosen["site"].isin(sought)]
        if len(chosen):
            parts += ["The small sets:",
                      markdown_of(chosen.assign(path=chosen["path"].round(3)).fillna(""))]
    return "\n\n".join(parts) + "\n"


def _zeros(results: Results) -> str:
    """Return how many places have estimates of exactly 0, by model and site."""
    counts = []
    for name, result in results.items():
        for (site,), maps in result.maps.groupby(["site"], sort=False):
            n = int((maps[["path", "gradient"]] == 0.0).all(axis=1).sum())
            counts += [f"{name} {n} of {len(maps)} {site}s"] if n else []
    return ", ".join(counts) or "here none"


def _correlations(results: Results) -> pd.DataFrame:
    rows = []
    for name, result in results.items():
        for (site, among, n), block in result.shown.groupby(
                ["site", "among", "n_places"], sort=False):
            rows.append({"model": name, "site": site, "places": f"{among} ({n})", **{
                f"{row.estimate}, {row.measure}": with_interval(row)
                for row in block.itertuples()}})
    return pd.DataFrame(rows).fillna("")


def _curves(results: Results) -> pd.DataFrame:
    rows = []
    for name, result in results.items():
        for (site, order), block in result.curve.groupby(["site", "order"], sort=False):
            rates = [f"{row.size}: {row.rate:.2f}" for row in block.itertuples(index=False)]
            rows.append({"model": name, "site": site, "order": order,
                         "places: rate": ", ".join(rates)})
    return pd.DataFrame(rows)
