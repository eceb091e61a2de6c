"""Maps of activation patching: layer by token by head, estimated everywhere, exact at the largest.

    estimate  (d step / d a) (a_source - a)     attribution patching, at all places by one gradient
    effect    step(a <- a_source) - step        activation patching, one pass for each place

`a` is z of a head [d], what an MLP puts out or the residual stream that enters a layer [D], at one
token; `step` is log p(source's answer) - log p(base's answer), which is a difference of two logits.
The control writes the activations of another source there, whose answer is not the source's
(`latentcode.tasks.counterfactuals.control_source`): what it moves is damage, not what the source
brings. Estimates are checked at random places, too, as the largest tell nothing of what they miss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions.estimates import Patched

ACTIVATIONS = (
    "site", "layer", "position", "head", "gradient", "gradient_low", "gradient_high", "path",
    "control_gradient", "chosen", "effect", "low", "high", "rate", "control", "control_low",
    "control_high", "difference", "difference_low", "difference_high", "n")
HEADLINE = 3
"""Places of a site that a sentence names."""


def activations(
    patched: Patched, site: str, labels: tuple[str, ...], n: int, n_bootstrap: int, seed: int,
    advance: Callable[[], None],
) -> tuple[pd.DataFrame, tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]]:
    """Return the table of a site (`ACTIVATIONS`), and what estimates and effects are compared by:
    estimates by method [N, place], effects [N, place], and which places are the strongest.

    Patched are the n places of largest |estimate| (by path where there is one), and n random ones
    of the others whose estimates are not exactly 0.

    labels   of the tokens
    advance  called after each place that is patched
    """
    combination = patched.combinations()

    def measured(x: np.ndarray, name: str, *ends: str) -> dict[str, np.ndarray]:
        value, low, high, _ = mean_and_interval(x, combination[:len(x)], n_bootstrap, seed)
        return dict(zip((name, *ends), (value, low, high), strict=False))

    methods = [name for name in ("path", "gradient")
               if patched.setting.n_points or name == "gradient"]
    estimates = {method: patched.estimates(method, site) for method in methods}
    controls = patched.estimates("control", site)
    layers = sorted({layer for name, layer in patched.setting.places if name == site})
    n_heads = controls.shape[1] // len(layers) // len(labels)
    table = pd.MultiIndex.from_product(
        [[site], layers, range(n_heads) if site == "z" else [np.nan], labels],
        names=["site", "layer", "head", "position"]).to_frame(index=False)
    has = ~np.isnan(controls).any(1)
    table = table.assign(
        **measured(estimates["gradient"], "gradient", "gradient_low", "gradient_high"),
        **({"path": estimates["path"].mean(0)} if "path" in estimates else {}),
        control_gradient=controls[has].mean(0) if has.any() else np.nan)

    mean = estimates[methods[0]].mean(0)
    order = np.argsort(-np.abs(mean), kind="stable")
    others = order[n:][mean[order[n:]] != 0.0]
    places = np.concatenate([order[:n], np.random.default_rng(seed).permutation(others)[:n]])
    strongest = np.arange(len(places)) < len(order[:n])
    both = patched.singly(site, places, advance)
    effects = both[..., 0]
    rows = pd.DataFrame({"chosen": np.where(strongest, "strongest", "random"),
                         **measured(effects, "effect", "low", "high"),
                         "rate": both[..., 1].mean(0), "n": len(effects)}, index=places)
    if has.any():
        by_control = patched.singly(site, places[strongest], advance, control=True)[has, :, 0]
        combination = combination[has]
        ends = (measured(by_control, "control", "control_low", "control_high")
                | measured(effects[has][:, strongest] - by_control, "difference",
                           "difference_low", "difference_high"))
        rows = rows.join(pd.DataFrame(ends, index=places[strongest]))
    table = table.join(rows).reindex(columns=list(ACTIVATIONS))
    return table, ({name: x[:, places] for name, x in estimates.items()}, effects, strongest)


def place_name(row: pd.Series) -> str:
    """Return `L9H6 at 14 to`, or `L9 at 14 to` of what has no heads."""
    head = "" if np.isnan(row["head"]) else f"H{int(row['head'])}"
    return f"L{row['layer']}{head} at {row['position']}"


def interval(row: pd.Series, value: str, prefix: str = "") -> str:
    """Return a value with its interval, where there is one."""
    low, high = row[f"{prefix}low"], row[f"{prefix}high"]
    return f"{row[value]:.2f}" + ("" if np.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def largest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the strongest places that were patched, the largest effect first."""
    rows = where(table, chosen="strongest")
    return rows.loc[rows["effect"].abs().sort_values(ascending=False, kind="stable").index]


def sentences(table: pd.DataFrame, correlations: pd.DataFrame, control: str) -> list[str]:
    """Say of each site the largest effects beside their control, how many are surely above it, and
    how well the estimates do at random places."""
    result = []
    for site, of_site in table.groupby("site", sort=False):
        rows = largest(of_site)
        named = "; ".join(
            f"{place_name(row)} {interval(row, 'effect')}"
            + ("" if np.isnan(row["control"]) else
               f" (control {interval(row, 'control', 'control_')})")
            for _, row in rows.head(HEADLINE).iterrows())
        above = int((rows["difference_low"] > 0).sum())
        beside = (f"{above} of {len(rows)} surely above their control ({control})"
                  if rows["control"].notna().any() else "no control: no other source")
        r = where(correlations, site=site, among="random", measure="pearson", estimate="gradient")
        agrees = f"; r of estimate and effect at {r['n_places'].iloc[0]} random places " \
                 f"{r['value'].iloc[0]:.2f}" if len(r) else ""
        result.append(f"{site}: largest effects {named}; {beside}{agrees}")
    return result


def summary_row(table: pd.DataFrame) -> dict[str, str]:
    """Return the largest effect of a site, where it is, and its control."""
    row = largest(table).iloc[0]
    return {"largest": place_name(row), "effect": interval(row, "effect"),
            "control": "" if np.isnan(row["control"]) else interval(row, "control", "control_")}


def activations_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return the estimates of each site as a map: layer by position, of z layer by head, its
    positions summed. Colours of a map are its own; dots are the places that were patched, of z
    heads with one."""
    sites = list(dict.fromkeys(table["site"]))
    with panels(1, len(sites), 3.4 * len(sites) + 0.4, 4.4, title) as (figure, axes):
        for site, ax in zip(sites, axes[0], strict=True):
            rows = where(table, site=site)
            value = "path" if rows["path"].notna().any() else "gradient"
            column = "head" if site == "z" else "position"
            matrix = rows.pivot_table(index="layer", columns=column, values=value, aggfunc="sum",
                                      sort=False)
            if site == "z":
                matrix.columns = matrix.columns.astype(int)
            drawn = heat_map(ax, matrix, signed_norm(matrix.to_numpy()), fontsize=6.0,
                             rotation=0.0 if site == "z" else 90.0)
            checked = where(rows, chosen="strongest")
            ax.plot([matrix.columns.get_loc(x) for x in checked[column]],
                    [matrix.index.get_loc(x) for x in checked["layer"]], linestyle="", marker=".",
                    markersize=2.5, color="black")
            ax.set(title=site, xlabel=column, ylabel="layer")
            figure.colorbar(drawn, ax=ax, fraction=0.05, pad=0.02).ax.tick_params(labelsize=6.0)
    return figure
