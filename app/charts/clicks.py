"""Clicks on a chart, whatever becomes of the chart meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from latentcode.app.state.messages import answering

_LISTENER = """
export default function ({ data, setTriggerValue }) {
    const chart = `.st-key-${data.chart}`;
    const plotAt = target => target.closest?.(`${chart} .js-plotly-plot`);
    const report = point => {
        const instance = point.customdata?.[0];
        if (instance !== undefined) setTriggerValue('instance', instance);
    };
    // The point that the mouse was last seen over, and what was pressed there.
    let seen = null, pressed = null;
    const isAt = (event, at) => Math.hypot(event.clientX - at.x, event.clientY - at.y) < 4;
    const listen = ({ target }) => {
        const plot = plotAt(target);
        if (!plot?.on || plot.listensToClicks) return;
        plot.listensToClicks = true;
        plot.on('plotly_hover', ({ points, event }) => {
            seen = { point: points[0], x: event.clientX, y: event.clientY };
        });
        plot.on('plotly_click', ({ points }) => {
            pressed = null;
            report(points[0]);
        });
    };
    const press = event => {
        listen(event);
        pressed = seen && isAt(event, seen) && event.target.closest?.(chart)
            ? { ...seen, plot: plotAt(event.target) } : null;
    };
    const release = event => {
        const click = pressed;
        // A chart tells of a click a moment later. One that is drawn anew meanwhile is another
        // chart, which knows of no click.
        if (click && isAt(event, click)) setTimeout(() => {
            if (click === pressed && !click.plot?.isConnected) report(click.point);
        }, 100);
    };
    const heard = { pointermove: listen, pointerdown: press, pointerup: release };
    for (const name in heard) document.addEventListener(name, heard[name], true);
    return () => {
        for (const name in heard) document.removeEventListener(name, heard[name], true);
    };
}
"""


def on_click(chart: str, note: Callable[[Any], None]) -> None:
    """Call `note` with the instance of a point that is clicked, whichever tool the mouse holds.

    Unlike Streamlit's own events, it counts a click also where the chart is drawn anew meanwhile.

    chart  key of a Plotly chart, whose points have their instance (or what else `note` takes: a
           whole number or text) as the first entry of `customdata`, and mean the same by it when
           they are drawn anew
    """
    key = f"clicks on {chart}"

    def noted() -> None:
        instance = st.session_state[key]["instance"]
        if isinstance(instance, int | str):
            note(instance)

    listener = st.components.v2.component("latentcode_clicks", js=_LISTENER)
    # A chart is found by its class, in which its key has hyphens for spaces.
    listener(key=key, data={"chart": chart.replace(" ", "-")}, height=0,
             on_instance_change=answering(noted))
