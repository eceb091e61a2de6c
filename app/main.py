"""The explorer's entry: what Streamlit runs. Start it with `latentcode explore`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import streamlit as st

from latentcode.app.charts.theme import STYLE, is_dark, logo, tab_icon
from latentcode.app.data.loaded import WAITING
from latentcode.app.language.given import given
from latentcode.app.settings import LANGUAGE, OTHERS, PAGES
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import open_address
from latentcode.registry import import_from_environment

HERE = Path(__file__).resolve().parent


def language_pages() -> tuple[tuple[str, str, str], ...]:
    """Return the pages of the language model that the explorer was started with; () without."""
    return () if given() is None else LANGUAGE


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
    language = language_pages()
    pages = {name: st.Page(opened(name), title=title, url_path=name, icon=icon)
             for name, title, icon in (*language, *PAGES)}
    st.session_state["pages"] = pages  # by which pages link to each other
    # A page has the same address, whichever is opened first: links hold everywhere.
    def lead() -> None:
        """Lead from the bare address to the first page, with what the address says."""
        st.switch_page(next(iter(pages.values())), query_params={
            key: st.query_params.get_all(key) for key in st.query_params})

    start = st.Page(lead, title="latentcode", default=True, visibility="hidden")
    current = st.navigation({"": [start, *(pages[name] for name, _, _ in language)], OTHERS: [
        pages[name] for name, _, _ in PAGES]} if language else [start, *pages.values()],
        position="top")
    if current == start:
        current.run()
    st.set_page_config(page_title=f"{current.title} · latentcode")
    open_address(current.url_path)
    st.html(STYLE)
    st.html(HERE / "charts" / "selected.css")
    st.logo(logo(is_dark()), size="large")
    st.session_state[WAITING] = st.empty()
    current.run()


if __name__ == "__main__":
    main()
