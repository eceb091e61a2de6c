"""The explorer on small folders: codes that are drawn, and nothing of the zoo."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from latentcode.app.charts import addresses
from latentcode.app.data.catalog import ROOTS, Entry
from latentcode.app.state.sidebar import Chosen
from latentcode.codes import LatentCodes
from latentcode.tasks.pairs import Pair

RULES = ("constant", "sum", "difference")
PAIR = "response->response"


def open_folders(patch: pytest.MonkeyPatch, folders: Sequence[Path]) -> None:
    """Let the explorer see these folders alone, and forget what it has kept in memory."""
    patch.setenv(ROOTS, json.dumps([str(folder) for folder in folders]))
    patch.setattr("latentcode.app.data.catalog.zoo_folders", dict)
    st.cache_data.clear()
    st.cache_resource.clear()
    st.session_state.clear()


def page_test(name: str, **query: str | list[str]) -> AppTest:
    """Return a page with a URL, before it is run."""
    test = AppTest.from_string(
        f"from latentcode.app.main import opened; opened({name!r})()", default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    return test


def shown(name: str, **query: str | list[str]) -> AppTest:
    """Return a page with a URL after it was run, in which nothing may go wrong by mistake."""
    test = page_test(name, **query).run()
    assert not test.exception
    assert not [error for error in test.error if "went wrong" in error.value]
    return test


def text(test: AppTest) -> str:
    """Return what a page says, but for its messages."""
    assert not test.exception
    return "\n".join(block.value for block in [*test.markdown, *test.caption])


def charts(test: AppTest) -> dict[str, go.Figure]:
    """Return the charts of a page by their keys, in their order."""
    return {chart.proto.id.rsplit("-", 1)[-1]: go.Figure(plain(json.loads(chart.proto.spec)))
            for chart in test.get("plotly_chart")}


def component(test: AppTest, name: str) -> Any:
    """Return what a component of the explorer, such as `map`, is told; None where there is none."""
    found = [json.loads(part.proto.json)[0] for part in test.get("bidi_component")
             if part.proto.component_name == f"latentcode_{name}"]
    assert len(found) < 2
    return found[0] if found else None


@dataclass
class Drawn:
    """A panel that is drawn as HTML, as text.

    series  name -> a number per column of bars, to three digits
    rows    value -> share of the selection and of all, in percent
    told    what the mouse is told, mark by mark
    """

    html: str

    @property
    def series(self) -> dict[str, list[float]]:
        said = html.unescape(re.findall(r"aria-label='([^']*)'", self.html)[0])
        return {name: [float(v) for v in numbers.split(", ")] for name, numbers in (
            part.split(": ") for part in said.split("; ")[1:])}

    @property
    def rows(self) -> dict[str, tuple[float, float]]:
        found = re.findall(r"title='([^']*)'.*?<td>(\d+)%</td><td>(\d+)%</td></tr>", self.html)
        return {html.unescape(name): (float(mine), float(every)) for name, mine, every in found}

    @property
    def told(self) -> list[str]:
        return [html.unescape(text) for text in re.findall(r"data-told='([^']*)'", self.html)]


def panels(test: AppTest) -> dict[str, Drawn]:
    """Return what stands beside the map: `shares`, `bars` or `confusion`, as far as they are."""
    kinds = ("shares", "bars", "confusion")
    return {kind: Drawn(found.proto.body) for found in test.get("html") for kind in kinds
            if f"class='lc-{kind}" in found.proto.body}


@dataclass
class Map:
    """A map as the browser is told of it.

    shown     what the page says
    planes    float [N, 2] of each plane
    values    of the colour, [N]
    selected  instances; None where everything is
    """

    shown: dict[str, Any]
    planes: list[np.ndarray]
    values: np.ndarray
    selected: list[int] | None

    @property
    def names(self) -> list[str]:
        names: list[str] = self.shown["colour"]["names"]
        return names


def map_shown(test: AppTest) -> Map:
    """Return the map of a page."""
    shown = component(test, "map")
    colour = shown["colour"]
    return Map(
        shown, [fetched(plane["points"], "<f4").reshape(2, -1).T for plane in shown["planes"]],
        fetched(colour["values"], "<u2"),
        None if shown["selected"] is None else fetched(shown["selected"], "<u4").tolist())


def fetched(address: str, kind: str) -> np.ndarray:
    """Return the array at an address of the explorer's server."""
    content = addresses.kept_array(address.rsplit("/", 1)[-1])
    assert content is not None
    return np.frombuffer(content, kind)


def drawn_codes(seed: int = 0, n: int = 90, *, instances: int = 0) -> LatentCodes:
    """Return codes that depend on a rule, seed by seed in another direction.

    instances  seed of the labels: equal ones stand for the same instances
    """
    rng, labels = np.random.default_rng(seed), np.random.default_rng(1_000 + instances)
    rule = labels.integers(0, len(RULES), n)
    direction = rng.normal(size=(len(RULES), 6))
    scores = direction[rule][:, None, None] + 0.1 * rng.normal(size=(n, 2, 2, 6))
    scores[:, 0, 0] = scores[0, 0, 0]  # nothing is known yet
    table = pd.DataFrame({
        "rule_0": np.array(RULES, dtype=object)[rule],
        "combination": [f"{RULES[r]}, {RULES[k]}" for r, k in zip(
            rule, labels.integers(0, 3, n), strict=True)],
        "split": "ood", "loss": rng.random(n), "accuracy": (rng.random(n) < 0.8).astype(float)})
    return LatentCodes(scores.astype(np.float32), table,
                       (Pair(PAIR, "the response to itself", 0),
                        Pair("response->row3", "the response to the last row", 0)),
                       (0, 1), {"split": "ood", "run": f"run {seed}", "seed": 0})


def chosen_codes(
    codes: LatentCodes | None = None, layer: int = 1, pair: str = PAIR
) -> Chosen:
    """Return codes, `drawn_codes` unless given, as the sidebar has them; what is kept goes."""
    st.cache_resource.clear()
    return Chosen(Entry("runs/codes", Path("runs/codes"), "codes"), "ood", layer, pair,
                  drawn_codes() if codes is None else codes)


def plain(spec: Any) -> Any:
    """Return the specification of a chart with its arrays, which travel as bytes, as lists."""
    if isinstance(spec, list):
        return [plain(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    if "bdata" in spec:
        array = np.frombuffer(base64.b64decode(spec["bdata"]), spec["dtype"])
        shape = [int(n) for n in str(spec.get("shape", len(array))).split(",")]
        return array.reshape(shape).tolist()
    return {key: plain(part) for key, part in spec.items()}
