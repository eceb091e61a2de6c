"""Pictures of attribution: maps over a grid of panels or over roles, single patches, growing sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import NullLocator, ScalarFormatter

from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.attribution.methods import METHODS
from latentcode.probes.common.figures import layers_in, panels, reach
from latentcode.probes.common.results import where

IN_GRID = r"row(\d+)\.panel(\d+) (.+)"
"""How a role says in which panel of a grid its token is."""
OWN = "own"
"""The feature that is asked about."""
COLORS = {"path": PALETTE[0], "gradient": PALETTE[1], "random": GREY}


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
