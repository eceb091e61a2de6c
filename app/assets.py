"""The explorer's own components: scripts and styles that lie beside the Python that uses them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer


def own_component(module: str, name: str, before: Sequence[str] = ()) -> ComponentRenderer:
    """Return the component of NAME.js and NAME.css beside a module, given by its `__name__`.

    Its script begins with that of `parts.js`, and then those of `before`, which lie beside it.
    """
    scripts = [text_of(module, f"{part}.js") for part in (*before, name)]
    return st.components.v2.component(
        f"latentcode_{name}", js=text_of(__name__, "parts.js") + "".join(scripts),
        css=text_of(module, f"{name}.css"), isolate_styles=False)


@cache
def text_of(module: str, name: str) -> str:
    """Return a file that lies beside a module, given by its `__name__`."""
    return files(module.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")
