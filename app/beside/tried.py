"""What was tried in this session: a table to keep, a line of which brings its state back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from latentcode.app.state.messages import answering
from latentcode.probes.interventions.bench.outcome import BenchOutcome

KEPT = "tried in this session"
"""Name in the session."""
MOST = 200
"""Lines that are kept, the last ones."""
STATE = ("model", "split", "instance", "which", "target", "what", "other", "site", "scope",
         "layers", "heads", "queries", "keys", "numbers", "how", "and", "site2", "scope2",
         "layers2")
"""What of the session a line keeps, by the names of the URL."""
COLUMNS = ("problem", "from", "to", "put", "before", "after", "whose answer", "sentence")


def note_tried(name: str, outcome: BenchOutcome) -> None:
    """Add an outcome to what was tried, unless it is the last line already.

    name  of the model and its split
    """
    lines: list[dict[str, Any]] = st.session_state.setdefault(KEPT, [])
    asked = name, outcome.ask
    if lines and lines[-1]["asked"] == asked:
        return
    state = {key: st.session_state[key] for key in STATE if key in st.session_state}
    lines.append({
        "asked": asked, "state": state, "address": address(),
        "model": name, "problem": outcome.ask.instance, "from": outcome.base_label,
        "to": outcome.ask.target, "put": in_short(outcome),
        "before": outcome.written(outcome.answer_before),
        "after": outcome.written(outcome.answer_after),
        "whose answer": " or ".join(outcome.classes), "sentence": outcome.sentence()})
    del lines[:-MOST]


def address() -> str:
    """Return the address of what is shown, as seen from any page of the explorer."""
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    return f"intervene?{urlencode(query, doseq=True)}"


def in_short(outcome: BenchOutcome) -> str:
    """Return what was put where: `code at context, layers 0,1: operation+operands`."""
    return " + ".join("{site} at {scope}, layers {layers}: {patch}".format(**part.own_row())
                      for part in outcome.ask.patch.parts)


def show_tried() -> None:
    """Show the table of what was tried, and its download."""
    lines: list[dict[str, Any]] = st.session_state.get(KEPT, [])
    with st.expander(f"Tried in this session ({len(lines)})", icon=":material/history:"):
        if not lines:
            return
        models = {line["model"] for line in lines}
        table = pd.DataFrame(lines)[::-1]
        columns = [*(["model"] if len(models) > 1 else []), *COLUMNS]

        def back() -> None:
            rows = st.session_state["tried"]["selection"]["rows"]
            if rows:
                bring_back(table.iloc[rows[0]]["state"])
                st.session_state["brought back"] = True

        st.dataframe(table[columns], hide_index=True, key="tried", on_select=answering(back),
                     selection_mode="single-row", height=min(38 * len(table) + 40, 240))
        st.caption("Select a line to go back to it. In the file each line has its address.")
        with st.container(horizontal=True):
            st.download_button(
                "Table, CSV", table[["model", *COLUMNS, "address"]].to_csv(index=False).encode(),
                "tried.csv", "text/csv", key="tried, table", on_click="ignore",
                icon=":material/download:")
            st.button("Forget all", on_click=answering(lambda: lines.clear()), type="tertiary")


def bring_back(state: Mapping[str, Any]) -> None:
    """Give all choices the values that a line has kept, and others none."""
    for key in STATE:
        if key in state:
            st.session_state[key] = state[key]
            if isinstance(state[key], str) and key in st.query_params:
                st.query_params[key] = state[key]
        else:
            st.session_state.pop(key, None)
            st.query_params.pop(key, None)


def brought_back() -> bool:
    """Whether a line has been chosen since the page was shown: it then begins anew."""
    return bool(st.session_state.pop("brought back", False))


__all__ = ["bring_back", "brought_back", "note_tried", "show_tried"]
