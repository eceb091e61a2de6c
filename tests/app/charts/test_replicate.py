"""The bars of a replication are the rates of the library."""

from __future__ import annotations

import pandas as pd
import pytest

pytest.importorskip("streamlit")

from latentcode.app.charts.intervene import bars
from latentcode.probes.interventions import Patch, Replication
from latentcode.probes.interventions.outcomes import Ask


def outcome(n: int = 24) -> Replication:
    """Return an outcome in which the patch brings B(x) in all instances but the first two."""
    rows = [{"number": i, "combination": i % 6, "base_label": "a", "source_label": "b",
             "patch": patch, "answer": 1.0, "class": name, "A(x)": 0.0, "B(x)": 1.0}
            for i in range(n) for patch, name in (
                ("interchange", "operation" if i > 1 else "else"), ("control", "base"),
                ("unrelated", "else"), ("random", "else"))]
    return Replication(Ask(Patch(), 0, "b"), ("base", "operation"), pd.DataFrame(rows), n, n, {},
                       0.0, True, 0)


def test_bars_are_rates_with_their_intervals() -> None:
    held = outcome()
    figure = bars(held, "rule", dark=False)
    assert [bar.name for bar in figure.data] == [
        "what was written", "same rules", "other problems", "random codes"]
    assert [list(bar.x) for bar in figure.data] == [
        ["base<br>A(x)", "operation<br>B(x)", "else<br>none of these"]] * 4
    assert list(figure.data[0].y) == [0.0, 22 / 24, 2 / 24]
    rates = held.rates().set_index(["patch", "class"]).loc[("interchange", "operation")]
    assert figure.data[0].error_y.arrayminus[1] == pytest.approx(rates["value"] - rates["low"])
    assert figure.data[0].error_y.array[1] == pytest.approx(rates["high"] - rates["value"])
    assert rates["low"] < rates["value"] < rates["high"]
