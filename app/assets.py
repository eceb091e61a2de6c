"""The explorer's own components: scripts and styles that lie beside the Python that uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

BEGINS = "export default function ({ data"
"""How the function of every script begins that Streamlit calls."""


def own_component(module: str, name: str, before: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the component of NAME.js and NAME.css beside a module, given by its `__name__`.

    Its script begins with that of `parts.js`, and then those of `before`, which lie beside it.
    """
    script = "".join(text_of(module, f"{part}.js") for part in (*before, name))
    assert script.count(BEGINS) == 1, f"{name}.js has to export one function that takes data first"
    component = st.components.v2.component(
        f"latentcode_{name}", js=text_of(__name__, "parts.js") + script.replace(
            BEGINS, f"{BEGINS}: [data]"), css=text_of(module, f"{name}.css"), isolate_styles=False)

    def show(*, data: Mapping[str, Any], **settings: Any) -> Any:
        # In a list: Streamlit searches a dict for tables, and the first page waits for pandas.
        return component(data=[data], **settings)

    return show


@cache
def text_of(module: str, name: str) -> str:
    """Return a file that lies beside a module, given by its `__name__`."""
    return files(module.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")
