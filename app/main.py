"""The explorer's entry: what Streamlit runs. Start it with `latentcode explore`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import streamlit as st

from latentcode.app.charts.theme import STYLE, is_dark, logo, tab_icon
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import take_along

# Module with the function `page`, title, name in the URL, icon.
PAGES: tuple[tuple[str, str, str, str], ...] = (
    ("explore", "Explore", "explore", ":material/scatter_plot:"),
    ("compare", "Compare", "compare", ":material/compare:"),
    ("probes", "Probes", "probes", ":material/query_stats:"),
    ("intervene", "Intervene", "intervene", ":material/edit:"),
    ("idea", "The idea", "idea", ":material/lightbulb:"),
)

def opened(module: str) -> Callable[[], None]:
    """Return the page of a module, which is imported when the page is opened.

    So that the first picture does not wait for what other pages need.
    """

    def page() -> None:
        import_module(f"latentcode.app.pages.{module}").page()

    return guarded(page)


def main() -> None:
    """Show the page that the URL names."""
    # Before the pages: their own icons for the browser's tab would come from a network.
    st.set_page_config(page_icon=tab_icon(), layout="wide")
    pages = [st.Page(opened(module), title=title, url_path=path, icon=icon, default=not i)
             for i, (module, title, path, icon) in enumerate(PAGES)]
    # Pages link to each other by these.
    st.session_state["pages"] = {path: page for page, (_, _, path, _) in zip(
        pages, PAGES, strict=True)}
    current = st.navigation(pages, position="top")
    st.set_page_config(page_title=f"{current.title} · latentcode")
    take_along(current.url_path)
    st.html(STYLE)
    st.logo(logo(is_dark()), size="large")
    current.run()


if __name__ == "__main__":
    main()
