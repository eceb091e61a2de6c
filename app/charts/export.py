"""What you can take away from a picture: its data, and the lines that remake it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data.loaded import saved_codes, stored_codes
from latentcode.app.state.selection import Picture
from latentcode.app.state.sidebar import Chosen
from latentcode.probes.projection import Projection, reduced_settings


def row(
    chosen: Chosen, method: str, colour: str, planes: Mapping[Picture, Projection],
    selected: np.ndarray | None,
) -> None:
    """Offer the downloads of a view; each file is made when it is asked for."""
    if not planes:
        return
    with st.expander("The data, and the lines of Python", icon=":material/download:"):
        st.caption("A row per instance and picture, with labels, code and position "
                   "(`projection_x`, `projection_y`); `selected` marks the selection.")
        name = f"{chosen.entry.key.replace('/', '-')}-{chosen.split}-{method}"
        with st.container(horizontal=True):
            for label, form in (("Table, CSV", "csv"), ("Table, parquet", "parquet")):
                st.download_button(
                    label, partial(_file, form, chosen, planes, selected), f"{name}.{form}",
                    key=f"download {form}", on_click="ignore")
        st.code(snippet(chosen, method, colour, planes), language="python")


def table(
    chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> pd.DataFrame:
    """Return a row per instance and picture: labels, code, `projection_x`, `projection_y`.

    `selected` marks the current selection.
    """
    blocks = []
    for picture, plane in planes.items():
        layer, pair = picture.layer, picture.pair
        codes = chosen.codes.select(layer=layer, pair=pair)
        heads = pd.DataFrame(np.asarray(codes), columns=[
            f"head_{h}" for h in range(chosen.codes.n_heads)])
        place = pd.DataFrame({
            "instance": np.arange(len(codes)), "layer": layer, "pair": pair,
            "projection_x": plane.coordinates[:, 0],
            "projection_y": plane.coordinates[:, 1],
            "selected": False if selected is None else selected})
        labels = chosen.codes.labels.reset_index(drop=True)
        labels = labels.drop(columns=[c for c in labels if c in place or c in heads])
        blocks.append(pd.concat([place, labels, heads], axis=1))
    return pd.concat(blocks, ignore_index=True)


def _file(
    form: str, chosen: Chosen, planes: Mapping[Picture, Projection], selected: np.ndarray | None
) -> bytes:
    return written(table(chosen, planes, selected), form)


def written(frame: pd.DataFrame, form: str) -> bytes:
    """Return a table as a file, `csv` or `parquet`."""
    return frame.to_csv(index=False).encode() if form == "csv" else frame.to_parquet(index=False)


def snippet(
    chosen: Chosen, method: str, colour: str, planes: Mapping[Picture, Projection]
) -> str:
    """Return the Python that makes the pictures of this view in a notebook."""
    entry, n = chosen.entry, len(chosen.codes)
    layers = [*dict.fromkeys(picture.layer for picture in planes)]
    pairs = _quoted(dict.fromkeys(picture.pair for picture in planes))
    path = json.dumps(entry.path.as_posix(), ensure_ascii=False)
    stored = (saved_codes(entry.path) if entry.kind == "codes"
              else stored_codes(entry, chosen.split) if entry.kind == "zoo" else None)
    if entry.kind == "codes":
        opened = f"codes = lc.LatentCodes.load({path})"
    elif entry.kind == "zoo":
        opened = f'codes = lc.load_codes("{entry.key}", "{chosen.split}")'
    if stored is None or len(stored) < n:
        run = (f'lc.load_run("{entry.key}")' if entry.kind == "zoo"
               else f"lc.Run.open({path})")
        opened = (f"run = {run}\ntask = lc.make_task(run.config.task).probe_config\n"
                  f'codes = lc.extract(run, split="{chosen.split}", n={n}, problems=task,\n'
                  f"                   pairs={pairs})")
    elif len(stored) > n:
        opened += f"\ncodes = codes.subset(range({n}))"
    settings = "".join(f", {name}={value}"
                       for name, value in reduced_settings(method, n).items())
    return (
        "import latentcode as lc\n\n"
        f"{opened}\n"
        f'view = lc.project(codes, labels={_quoted([colour])}, method="{method}",\n'
        f"                  layers={layers}, pairs={pairs}{settings})\n"
        "view")


def _quoted(names: Iterable[str]) -> str:
    """Return names as a Python list, whatever characters they have."""
    return json.dumps([*names], ensure_ascii=False)
