"""The explorer's entry: what Streamlit runs. Start it with `latentcode explore`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import streamlit as st

from latentcode.app.charts.theme import STYLE, is_dark, logo, tab_icon
from latentcode.app.data.loaded import WAITING, opens_on_own
from latentcode.app.share.address import say_what_came, say_what_is_lost, translate
from latentcode.app.share.bar import show_bar
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import is_new, open_address
from latentcode.app.tour.card import show_tour
from latentcode.imports import import_from_environment

HERE = Path(__file__).resolve().parent
# Module with the function `page`, which is its name in the URL, too; title, icon.
PAGES: tuple[tuple[str, str, str], ...] = (
    ("explore", "Explore", ":material/scatter_plot:"),
    ("compare", "Compare", ":material/compare:"),
    ("decode", "Decode", ":material/query_stats:"),
    ("similarity", "Similarity", ":material/grid_on:"),
    ("intervene", "Intervene", ":material/edit:"),
    ("evidence", "Evidence", ":material/fact_check:"),
    ("idea", "The idea", ":material/lightbulb:"),
    ("results", "Results", ":material/table_chart:"),
)


def opened(module: str) -> Callable[[], None]:
    """Return the page of a module, which is imported only when the page is opened.

    The first picture then does not wait for what other pages need.
    """

    def page() -> None:
        import_module(f"latentcode.app.pages.{module}").page()

    return guarded(page)


def main() -> None:
    """Show the page that the URL names."""
    # Streamlit looks for modules beside this file first, where `data` is not a user's data.py.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]
    import_from_environment()
    # Before the pages: their own icons for the browser's tab would come from a network.
    st.set_page_config(page_icon=tab_icon(), layout="wide")
    pages = {name: st.Page(opened(name), title=title, url_path=name, icon=icon,
                           default=name == PAGES[0][0]) for name, title, icon in PAGES}
    st.session_state["pages"] = pages  # by which pages link to each other
    current = st.navigation([*pages.values()], position="top")
    # Who came with codes of his own has come to see those.
    if (is_new() and not current.url_path and pages["explore"].url_path and not st.query_params
            and opens_on_own()):
        st.switch_page(pages["explore"])
    st.set_page_config(page_title=f"{current.title} · latentcode")
    translate(current.url_path, pages)
    open_address(current.url_path)
    st.html(STYLE)
    st.html(HERE / "charts" / "selected.css")
    st.logo(logo(is_dark()), size="large")
    show_tour(current.url_path)
    st.session_state[WAITING] = st.empty()
    say_what_came(current.url_path)
    head = st.container()
    current.run()
    say_what_is_lost(head)
    show_bar(current.title)


if __name__ == "__main__":
    main()
