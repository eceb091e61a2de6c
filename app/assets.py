"""Scripts of the explorer: our own components, and the drawing library of the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

from latentcode.errors import ConfigError, check

BEGINS = "export default function ({ data"
"""How the function of every script begins that Streamlit calls."""
PACKAGE = "jupyter-scatter"
BUNDLE = "jscatter/bundle.js"
WANTED = ("createScatterplot", "createRenderer")
"""Functions of regl-scatterplot. The bundle has them, and exports a notebook's widget alone."""


def own_component(module: str, name: str, before: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the component of NAME.js and NAME.css beside a module, given by its `__name__`.

    Its script begins with that of `parts.js`, and then those of `before`, which lie beside it.
    """
    import streamlit as st

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


def installed() -> Distribution:
    """Return the package; `ConfigError` where it is not installed."""
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        raise ConfigError(f"the explorer needs {PACKAGE}, which is not installed; expected "
                          "latentcode[app] (pip install 'latentcode[app]')") from None


@cache
def script() -> bytes:
    """Return the bundle with the functions of regl-scatterplot among its exports.

    `ConfigError` if the installed version has no such bundle.
    """
    found = installed()
    path = Path(str(found.locate_file(BUNDLE)))
    check(path.is_file(), f"{PACKAGE} {found.version} has no {BUNDLE}; expected 1.0", ConfigError)
    text = path.read_text(encoding="utf-8")
    missing = [name for name in WANTED if f"var {name} = (" not in text]
    check(not missing, f"{PACKAGE} {found.version} does not define {', '.join(missing)}; expected "
          "a version with regl-scatterplot, such as 1.0", ConfigError)
    return f"{text}\nexport {{ {', '.join(WANTED)} }};\n".encode()
