"""The outcome of attribution: maps, patches that check them, and small sets of places.

How is the effect of writing a source's activation estimated? (d step / d a) (a_source - a),
where

    gradient  the derivative is taken at the base: attribution patching
    path      it is the mean over points on the way from the base's activations at all places
              of the site to the source's (integrated gradients): the estimates sum to the effect of
              writing all of them, up to the number of points
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import NullLocator, ScalarFormatter

from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import layers_in, panels, reach
from latentcode.probes.common.results import TableResult, where, with_interval

METHODS = ("path", "gradient")
"""Sets are made in the order of the first."""
PLACE: tuple[str, ...] = ("site", "layer", "query", "key")
"""Columns that name a place; a value has no query."""
LEAST_PLACES = 20
"""A correlation over fewer places is not shown."""
ESTIMATES: tuple[str, ...] = ("path", "path_absolute", "gradient", "gradient_absolute")
IN_GRID = r"row(\d+)\.panel(\d+) (.+)"
"""How a role says in which panel of a grid its token is."""
OWN = "own"
"""The feature that is asked about."""
COLORS = {"path": PALETTE[0], "gradient": PALETTE[1], "random": GREY}


@dataclass(frozen=True, repr=False)
class AttributionResult(TableResult):
    """Where the codes and values are that the source's answer hangs on.

    Places are named by the roles of query and key. Estimates are in the unit of the step towards
    the source's answer: nats where answers are symbols, the answer's own where they are numbers.

    maps     one row per place, all heads together: the mean estimate over instances by `path`
             and by `gradient` (`latentcode.probes.attribution.result`), and the means of their
             sizes, `path_absolute` and `gradient_absolute`
    heads    the same per head
    patches  places that were written singly (`chosen`: as one of the strongest, or at random):
             both estimates, and the real `effect` with its interval; `rate`, the share of answers
             that became the source's
    correlations  of either estimate and the effect over these places
    curve    of sets that grow in the order of either estimate, or in a random one of all places,
             also of those that nothing hangs on: `rate` and `step` with intervals, over the
             instances that took no part in any choice
    smallest one row per site: the rate of writing all places, on the instances that the set was
             chosen on (`searched_`) and on the others (`held_`); the `size` of a small set, and
             `before_pruning`; its rate on the first, `searched`, and on the others, with
             interval. It is found greedily, and a smaller one may do as much. NaN where none was
    chosen   the places of that set, and their estimates by path
    contrasts  of sets of one size: what those in the order of an estimate bring (`rate`, `step`)
             less what those in a `random` order do
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.attribution"
    SHOWS = "how well linear estimates do, and how few places suffice"
    COLUMNS: ClassVar = {
        "maps": (*PLACE, *ESTIMATES),
        "heads": (*PLACE, "head", *ESTIMATES),
        "patches": (*PLACE, "chosen", "path", "gradient", "effect", "low", "high", "rate", "n"),
        "correlations": ("site", "estimate", "among", "measure", "value", "low", "high",
                         "n_places", "n"),
        "curve": ("site", "order", "size", "rate", "low", "high", "step", "step_low", "step_high",
                  "n"),
        "smallest": ("site", "n_places", "searched_all", "held_all", "size", "before_pruning",
                     "searched", "rate", "low", "high", "step", "step_low", "step_high", "n"),
        "chosen": (*PLACE, "path"),
        "contrasts": contrast_columns("site", "size", "order")}
    BEST_OF: ClassVar = ("size",)
    TOLD: ClassVar = {"quantity": ("rate",)}

    maps: pd.DataFrame
    heads: pd.DataFrame
    patches: pd.DataFrame
    correlations: pd.DataFrame
    curve: pd.DataFrame
    smallest: pd.DataFrame
    chosen: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def shown(self) -> pd.DataFrame:
        """The correlations over at least `LEAST_PLACES` places."""
        return self.correlations[self.correlations["n_places"] >= LEAST_PLACES]

    def sought(self, small: Mapping[Any, Any]) -> bool:
        """Say of a row of `smallest` whether a set is looked for: do all places bring enough?

        Older results do not have the lower end of their rate's interval; the rate is above it.
        """
        low = self.settings.get("searched_low", {}).get(small["site"], small["searched_all"])
        return bool(low > self.settings["least_rate"])

    def share(self, small: Mapping[Any, Any]) -> float:
        """Return the part of what all places bring that a set brings on the held-out instances."""
        return float(small["rate"] / small["held_all"]) if small["held_all"] else np.nan

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        notes = [f"{s['n_known']} of {s['n']} instances count, which the model and its sources "
                 f"answer rightly; {s['n_patched']} of them are written into."]
        for row in self.smallest.to_dict("records"):
            everything = (f"All {row['site']}s bring the source's answer in "
                          f"{row['searched_all']:.2f}")
            if not self.sought(row):
                notes.append(f"{everything}, not surely more than {s['least_rate']}: no set is "
                             "looked for.")
            elif np.isnan(row["size"]):
                notes.append(f"{everything}, and the first {min(s['n_ranked'], row['n_places'])} "
                             f"places do not bring {s['share']:.0%} of that.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return per site the correlations, the rate of all places, and a small set's."""
        rows = []
        for small in self.smallest.to_dict("records"):
            site = small["site"]
            row: dict[str, Any] = {"site": site}
            for r in where(self.shown, site=site, among="all",
                           measure="pearson").itertuples():
                row[f"r of {r.estimate}"] = with_interval(r)
            row |= {"places": small["n_places"], "all": f"{small['held_all']:.2f}"}
            if self.sought(small) and not np.isnan(small["size"]):
                row |= {"small set": int(small["size"]),
                        "its rate": f"{small['rate']:.2f} [{small['low']:.2f}, "
                                    f"{small['high']:.2f}]",
                        "of all": f"{self.share(small):.0%}"}
            rows.append(row)
        columns = dict.fromkeys(name for row in rows for name in row)
        return pd.DataFrame([{name: row.get(name, "") for name in columns} for row in rows])

    def figure(self) -> Figure:
        """Return the maps; see `maps_figure`."""
        return maps_figure(self.maps, self.settings)

    def figures(self) -> dict[str, Figure]:
        """Return the maps, and how sets grow beside the check by single patches."""
        sought = self.smallest.assign(size=[
            row["size"] if self.sought(row) else np.nan
            for row in self.smallest.to_dict("records")])
        return super().figures() | {
            "sets.png": sets_figure(self.patches, self.curve, sought, self.settings)}


def maps_figure(maps: pd.DataFrame, settings: Mapping[str, Any]) -> Figure:
    """Return the mean attribution by path, signed, a column per layer.

    Of roles in a grid: a block per query panel, in it a cell per key panel; first the codes from
    tokens of the feature that is asked about to others of it, then all the rest; values below.
    """
    grid = all(re.fullmatch(IN_GRID, role) for role in settings["roles"])
    rows = [row for site in settings["sites"] for row in _rows(where(maps, site=site), site, grid)]
    layers = layers_in(maps)
    with panels(len(rows), len(layers), 2.1 * len(layers) + 1.3, 2.05 * len(rows) + 0.4,
                f"{settings.get('kind', 'model')}: attribution to the source's answer "
                f"({settings['source']})") as (figure, axes):
        for (name, table), line in zip(rows, axes, strict=True):
            matrices = {layer: _matrix(where(table, layer=layer), grid) for layer in layers}
            norm = signed_norm(np.concatenate([m.to_numpy().ravel() for m in matrices.values()]))
            for layer, ax in zip(layers, line, strict=True):
                drawn = heat_map(ax, matrices[layer], norm, fontsize=6.5)
                ax.set_box_aspect(1.0 if len(matrices[layer]) > 1 else 0.25)
                if grid:
                    _draw_blocks(ax, drawn, len(settings["roles"]))
            line[0].set_ylabel(name, fontsize=8.0)
            figure.colorbar(drawn, ax=list(line), fraction=0.03, pad=0.01).ax.tick_params(
                labelsize=6.5)
        for layer, ax in zip(layers, axes[0], strict=True):
            ax.set_title(f"layer {layer}")
    return figure


def _rows(maps: pd.DataFrame, site: str, grid: bool) -> list[tuple[str, pd.DataFrame]]:
    """Return the tables that are drawn of a site, a row of the figure each, by name."""
    if not grid:
        return [(f"{site}s: query, key" if site == "code" else f"{site}s of keys", maps)]
    own = maps["key"].str.endswith(f" {OWN}")
    if site == "value":
        return [("values, own feature", maps[own]), ("values, other features", maps[~own])] if (
            ~own).any() else [("values", maps[own])]
    own = own & maps["query"].str.endswith(f" {OWN}")
    named = [("codes, own to own\n(block: query, cell: key)", maps[own])]
    return named + ([("codes, all others", maps[~own])] if (~own).any() else [])


def _matrix(table: pd.DataFrame, grid: bool) -> pd.DataFrame:
    """Return the attributions of a layer as they are drawn, summed over what is drawn as one."""
    if not grid:
        if not table["query"].fillna("").any():
            return pd.DataFrame([table["path"].to_numpy()], [""], list(table["key"]))
        return table.pivot(index="query", columns="key", values="path")
    place = table["key"].str.extract(IN_GRID)[[0, 1]].astype(int) - 1
    size = int(place.to_numpy().max()) + 1
    row, column = place[0].to_numpy(), place[1].to_numpy()
    side = size
    if (table["site"] == "code").all():
        query = table["query"].str.extract(IN_GRID)[[0, 1]].astype(int) - 1
        row, column = row + size * query[0].to_numpy(), column + size * query[1].to_numpy()
        side = size * size
    sums = np.zeros((side, side))
    np.add.at(sums, (row, column), table["path"].to_numpy())
    return pd.DataFrame(sums, [""] * side, [""] * side)


def _draw_blocks(ax: Axes, drawn: AxesImage, n_roles: int) -> None:
    """Separate the blocks of a map of codes, and the cells of one of values."""
    side = drawn.get_array().shape[0]  # type: ignore[union-attr]
    size = round(side**0.5) if side**0.5 == round(side**0.5) and side > 3 else 1
    ax.set_xticks([])
    ax.set_yticks([])
    for line in range(size, side, size):
        ax.axhline(line - 0.5, color="black", linewidth=0.8)
        ax.axvline(line - 0.5, color="black", linewidth=0.8)


def sets_figure(
    patches: pd.DataFrame, curve: pd.DataFrame, smallest: pd.DataFrame, settings: Mapping[str, Any]
) -> Figure:
    """Return per site estimates against real effects, and how the rate grows with a set."""
    sites = settings["sites"]
    with panels(len(sites), 2, 7.4, 2.7 * len(sites), str(settings.get("kind", ""))) as (
            figure, axes):
        for site, (left, right) in zip(sites, axes, strict=True):
            _draw_patches(left, where(patches, site=site), site)
            _draw_curve(right, where(curve, site=site), where(smallest, site=site), settings)
    return figure


def _draw_patches(ax: Axes, patches: pd.DataFrame, site: str) -> None:
    for method in reversed(METHODS):
        ax.errorbar(patches[method], patches["effect"], yerr=reach(patches, "effect"),
                    linestyle="", marker="o", markersize=3.0, elinewidth=0.8, label=method,
                    color=COLORS[method])
    ends = [patches["effect"].min(), patches["effect"].max()]
    ax.plot(ends, ends, color="black", linewidth=0.7)
    ax.set(xlabel="estimate", ylabel=f"{site}s: effect of a patch")
    ax.legend()


def _draw_curve(
    ax: Axes, curve: pd.DataFrame, smallest: pd.DataFrame, settings: Mapping[str, Any]
) -> None:
    for order, rows in curve.groupby("order", sort=False):
        ax.fill_between(rows["size"], rows["low"], rows["high"], alpha=0.2,
                        color=COLORS[str(order)], linewidth=0.0)
        ax.plot(rows["size"], rows["rate"], marker=".", color=COLORS[str(order)],
                label=f"{order} order")
    everything = float(smallest["held_all"].iloc[0])
    ax.axhline(settings["share"] * everything, color="black", linewidth=0.7, linestyle="--")
    ax.plot(smallest["size"], smallest["rate"], marker="*", markersize=9, linestyle="",
            color=PALETTE[3], label="small set")
    ax.set(xscale="log", xlabel="places", ylabel=f"rate: {settings['rate']}", ylim=(-0.02, 1.02))
    sizes = np.unique(curve["size"])
    ax.set_xticks(sizes[::1 + len(sizes) // 8], minor=False)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(fontsize=7.0)
