"""What was tried in this session: a table to keep, a line of which brings its state back."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from latentcode.app.state.messages import answering
from latentcode.app.state.url import address, go_to
from latentcode.probes.interventions.outcomes import BenchOutcome

KEPT = "tried in this session"
"""Name in the session."""
MOST = 200
"""Lines that are kept, the last ones."""
COLUMNS = ("problem", "from", "to", "put", "before", "after", "whose answer", "sentence")


def note_tried(name: str, outcome: BenchOutcome) -> None:
    """Add an outcome to what was tried, unless it is the last line already.

    name  of the model and its split
    """
    lines: list[dict[str, Any]] = st.session_state.setdefault(KEPT, [])
    asked = name, outcome.ask
    if lines and lines[-1]["asked"] == asked:
        return
    lines.append({
        "asked": asked, "state": address(),
        "address": f"intervene?{urlencode(address(), doseq=True)}",
        "model": name, "problem": outcome.ask.instance, "from": outcome.base_label,
        "to": outcome.ask.target, "put": in_short(outcome),
        "before": outcome.written(outcome.answer_before),
        "after": outcome.written(outcome.answer_after),
        "whose answer": " or ".join(outcome.classes), "sentence": outcome.sentence()})
    del lines[:-MOST]


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
                go_to(table.iloc[rows[0]]["state"])
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


def brought_back() -> bool:
    """Whether a line has been chosen since the page was shown: it then begins anew."""
    return bool(st.session_state.pop("brought back", False))
