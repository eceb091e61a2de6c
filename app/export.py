"""What one takes along from a picture: its data, the figure, and the lines that make it again."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app import data
from latentcode.app.sidebar import Chosen
from latentcode.probes.figures import ScatterCell, scatter_figure


def row(
    chosen: Chosen, method: str, colour: str, planes: Mapping[str, data.Plane],
    selected: np.ndarray | None,
) -> None:
    """Offer the downloads of a view; each file is made when it is asked for."""
    if not planes:
        return
    with st.expander("Export and share", icon=":material/download:"):
        st.caption("The address of this page holds the whole view: copy it to share it. "
                   "The table has a row per instance and picture, with its labels, its code and "
                   "its place (`projection_x`, `projection_y`).")
        name = f"{chosen.source.key.replace('/', '-')}-{chosen.split}-{method}"
        buttons = st.columns(5)
        for column, (label, ending, make) in zip(buttons, (
                ("Table, CSV", "csv", lambda: _csv(table(chosen, planes, selected))),
                ("Table, parquet", "parquet", lambda: _parquet(table(chosen, planes, selected))),
                ("Figure, SVG", "svg", lambda: _drawn(chosen, colour, planes, "svg")),
                ("Figure, PNG", "png", lambda: _drawn(chosen, colour, planes, "png"))),
                strict=False):
            column.download_button(label, make, f"{name}.{ending}", key=f"download {ending}",
                                   on_click="ignore")
        st.code(snippet(chosen, method, colour), language="python")


def table(
    chosen: Chosen, planes: Mapping[str, data.Plane], selected: np.ndarray | None
) -> pd.DataFrame:
    """Return a row per instance and picture: labels, code, `projection_x`, `projection_y`."""
    blocks = []
    for name, plane in planes.items():
        _, layer, pair = name.split(".", 2)
        codes = chosen.codes.select(layer=int(layer), pair=pair)
        heads = pd.DataFrame(np.asarray(codes), columns=[
            f"head_{h}" for h in range(chosen.codes.n_heads)])
        place = pd.DataFrame({
            "instance": np.arange(len(codes)), "layer": int(layer), "pair": pair,
            "projection_x": plane.projection.coordinates[:, 0],
            "projection_y": plane.projection.coordinates[:, 1],
            "selected": False if selected is None else selected})
        labels = chosen.codes.labels.reset_index(drop=True)
        labels = labels.drop(columns=[c for c in labels if c in place or c in heads])
        blocks.append(pd.concat([place, labels, heads], axis=1))
    return pd.concat(blocks, ignore_index=True)


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def _parquet(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file, index=False)
    return file.getvalue()


def _drawn(
    chosen: Chosen, colour: str, planes: Mapping[str, data.Plane], form: str
) -> bytes:
    """Return the view as the library draws it, for print."""
    values = chosen.codes.label(colour, chosen.pair).rename(colour)
    cells = []
    for name, plane in planes.items():
        _, layer, pair = name.split(".", 2)
        trust = plane.projection.quality.get("trustworthiness")
        cells.append(ScatterCell(pair, f"layer {layer}", plane.projection.coordinates, values,
                                 "" if trust is None else f"trustworthiness {trust:.2f}"))
    file = io.BytesIO()
    scatter_figure(cells, panel_inches=4.0 if len(cells) == 1 else 2.4).savefig(
        file, format=form, dpi=200)
    return file.getvalue()


def snippet(chosen: Chosen, method: str, colour: str) -> str:
    """Return the Python that makes this view in a notebook."""
    source, n = chosen.source, len(chosen.codes)
    if source.kind == "codes":
        opened = f'codes = lc.LatentCodes.load("{source.path.as_posix()}")'
    elif source.kind == "zoo":
        opened = f'codes = lc.load_codes("{source.key}", "{chosen.split}")'
        if len(data.stored_codes(source, chosen.split) or ()) < n:
            opened = _extracted(f'lc.load_run("{source.key}")', chosen, n)
    else:
        opened = _extracted(f'lc.Run.open("{source.path.as_posix()}")', chosen, n)
    return (
        "import latentcode as lc\n"
        "from latentcode.probes.projecting import project_codes\n\n"
        f"{opened}\n"
        f'view = project_codes(codes, ["{colour}"], method="{method}",\n'
        f'                     layers=[{chosen.layer}], pairs=["{chosen.pair}"])\n'
        "view")


def _extracted(run: str, chosen: Chosen, n: int) -> str:
    return (f"run = {run}\ntask = lc.make_task(run.config.task).probe_config\n"
            f'codes = lc.extract(run, "{chosen.split}", n={n}, task=task,\n'
            f'                   pairs=["{chosen.pair}"])')


__all__ = ["row", "snippet", "table"]
