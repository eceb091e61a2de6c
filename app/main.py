"""The explorer's entry: what Streamlit runs. Start it with `latentcode explore`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path

import streamlit as st

from latentcode.app.charts.theme import STYLE, is_dark, logo, tab_icon
from latentcode.app.data.catalog import allowed_folders, catalog
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import take_along
from latentcode.app.tour.card import CAME, show_tour
from latentcode.imports import import_from_environment

HERE = Path(__file__).resolve().parent
# Module with the function `page`, which is its name in the URL, too; title, icon.
PAGES: tuple[tuple[str, str, str], ...] = (
    ("what_codes_do", "What codes do", ":material/swap_horiz:"),
    ("explore", "Explore", ":material/scatter_plot:"),
    ("compare", "Compare", ":material/compare:"),
    ("decode", "Decode", ":material/query_stats:"),
    ("similarity", "Similarity", ":material/grid_on:"),
    ("intervene", "Intervene", ":material/edit:"),
    ("evidence", "Evidence", ":material/fact_check:"),
    ("idea", "The idea", ":material/lightbulb:"),
    ("results", "Results", ":material/table_chart:"),
)

OF_FIRST = {"task", "kind", "put", "drop", "problem"}
"""What addresses of the first page say."""


def opened(module: str) -> Callable[[], None]:
    """Return the page of a module, which is imported only when the page is opened.

    The first picture then does not wait for what other pages need.
    """

    def page() -> None:
        import_module(f"latentcode.app.pages.{module}").page()

    return guarded(page)


def first_page(query: Collection[str], roots: Sequence[Path]) -> str:
    """Return the page on which the explorer opens: what codes do.

    Where a user's folder holds runs or codes it is Explore, and where the address chooses
    something of Explore, which earlier versions opened on.
    """
    library = (HERE.parent / "experiments" / "results").resolve()
    own = any(entry.kind != "zoo" and not entry.path.resolve().is_relative_to(library)
              for entry in catalog(roots))
    return "explore" if own or set(query) - OF_FIRST else PAGES[0][0]


@st.cache_resource(ttl=10, show_spinner=False)
def _first_page(query: tuple[str, ...]) -> str:
    return first_page(query, allowed_folders())


def _go_to_first() -> None:
    """Lead from the bare address to the page that is opened first, with what the address says."""
    name = _first_page(tuple(st.query_params))
    st.session_state.setdefault(CAME, "" if st.query_params else name)
    st.switch_page(st.session_state["pages"][name], query_params={
        key: st.query_params.get_all(key) for key in st.query_params})


def main() -> None:
    """Show the page that the URL names."""
    # Streamlit looks for modules beside this file first, where `data` is not a user's data.py.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]
    import_from_environment()
    # Before the pages: their own icons for the browser's tab would come from a network.
    st.set_page_config(page_icon=tab_icon(), layout="wide")
    pages = {name: st.Page(opened(name), title=title, url_path=name, icon=icon)
             for name, title, icon in PAGES}
    st.session_state["pages"] = pages  # by which pages link to each other
    # A page has the same address, whichever is opened first: links hold everywhere.
    start = st.Page(_go_to_first, title="latentcode", default=True, visibility="hidden")
    current = st.navigation([start, *pages.values()], position="top")
    if current == start:
        current.run()
    st.set_page_config(page_title=f"{current.title} · latentcode")
    take_along(current.url_path)
    st.html(STYLE)
    st.html(HERE / "charts" / "selected.css")
    st.logo(logo(is_dark()), size="large")
    show_tour(current.url_path)
    current.run()


if __name__ == "__main__":
    main()
