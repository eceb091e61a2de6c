"""Clicks on the points of a picture, whichever tool the mouse holds.

Streamlit's chart reports clicks only while the mouse zooms or pans, not while it draws a lasso or a
box. This listens to the chart itself.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

_LISTENER = """
export default function ({ data, setTriggerValue }) {
    const listen = event => {
        const plot = event.target.closest?.(`.st-key-${data.chart} .js-plotly-plot`);
        if (!plot || plot.listensToClicks) return;
        plot.listensToClicks = true;
        plot.on('plotly_click', ({ points }) => {
            // In the other modes the chart reports the click itself.
            const instance = points[0].customdata?.[0];
            if (instance === undefined || plot._fullLayout.clickmode.includes('select')) return;
            setTriggerValue('instance', instance);
        });
    };
    document.addEventListener('pointerdown', listen, true);
    return () => document.removeEventListener('pointerdown', listen, true);
}
"""


def on_click(chart: str, note: Callable[[int], None]) -> None:
    """Call `note` with the instance of a point that is clicked.

    chart  key of a Plotly chart, the points of which have their instance as `customdata`
    """
    key = f"clicks on {chart}"

    def noted() -> None:
        instance = st.session_state[key]["instance"]
        if isinstance(instance, int):
            note(instance)

    listener = st.components.v2.component("latentcode_clicks", js=_LISTENER)
    # A chart is found by its class, in which its key has hyphens for spaces.
    listener(key=key, data={"chart": chart.replace(" ", "-")}, height=0, on_instance_change=noted)


__all__ = ["on_click"]
