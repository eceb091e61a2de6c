"""What the pages of a language model share: how far the reading is, chosen pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import streamlit as st

from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job, work
from latentcode.app.state.messages import answering
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal

PAIR, HEAD = "lm_pair", "lm_head"
PROMPT, EDITED, SOURCE = "prompt", "edited", "source"
"""What the URL calls a pair (text.query.key), a head (L0H0), and prompts."""
KNOWN_BY: dict[Any, Callable[[Any], Any]] = {Job: id, Read: lambda read: read.stamp}
"""`hash_funcs` of what Streamlit keeps of what was read. A page takes `Job.read` once: while it is
shown, more may be read."""
OF_BASE, OF_SOURCE = ("base_query", "base_key"), ("source_query", "source_key")
"""What the URL calls the places of a patch."""
ANEW: Mapping[str, Sequence[str]] = {
    PROMPT: (EDITED, *OF_BASE, *OF_SOURCE), EDITED: OF_SOURCE,
    SOURCE: OF_SOURCE}
"""What begins with its default again where another text is taken."""
GOES = "a table leads to a page"
"""Name in the session."""
MOST_CHARACTERS = 600
"""Of a prompt, so that the address stays short."""


@dataclass(frozen=True)
class Pair:
    """A query and a key of a text, by their positions."""

    text: int
    query: int
    key: int

    @classmethod
    def named(cls, name: str | None) -> Pair | None:
        """Return the pair that an address names; None where it names none."""
        parts = (name or "").split(".")
        if len(parts) != 3 or not all(part.isdecimal() and len(part) < 8 for part in parts):
            return None
        found = cls(*map(int, parts))
        return found if found.key <= found.query else None

    @property
    def name(self) -> str:
        return f"{self.text}.{self.query}.{self.key}"


def show_progress(job: Job, read: Read | None) -> None:
    """Show what is being done, until it is; an error where it failed.

    read  what the page shows: it is shown anew as soon as more was read
    """
    if job.error is not None:
        st.error(literal(job.error), icon=":material/error:")
        return
    if job.said:
        st.info(literal(job.said), icon=":material/info:")
    if not job.is_over or job.read is not read:
        _watch(job, read)


def show_read(title: str, body: Callable[[Job], None]) -> None:
    """Show what a page makes of the model, or how far its reading is.

    title  with {} for the model, until something has been read
    """
    job = work().job
    st.sidebar.markdown(f"**{literal(job.title)}**")
    if job.read is None:
        st.markdown(f"##### {title.format(literal(job.title))}")
        show_progress(job, None)
        return
    body(job)


@st.fragment(run_every=0.7)
def _watch(job: Job, read: Read | None) -> None:
    if job.read is not read or job.is_over:
        st.rerun()
    with st.container(key="reading"):  # which stays when nothing else runs
        st.progress(job.share, text=literal(job.text))


def take(key: str, text: str | None) -> None:
    """Put a text into the URL, in place of another one that a page has for `key`."""
    remember(key, text or None)
    for other in ANEW[key]:
        remember(other, None)


def typed(label: str, key: str, default: str, *, help: str) -> str:
    """Return a text that the URL has, or somebody types."""
    widget = f"{key} typed"
    known = remembered(key)
    value = default if known is None else known[:MOST_CHARACTERS]
    if st.session_state.get(widget) != value:
        st.session_state[widget] = value

    st.text_input(label, key=widget, max_chars=MOST_CHARACTERS, help=help,
                  on_change=answering(lambda: take(key, st.session_state[widget])))
    return value


def rows_choose(
    table: pd.DataFrame, names: list[str], *, key: str, into: str, to: str | None = None,
    height: int | Literal["content"] = "content", **config: Any,
) -> None:
    """Show a table; the name of the row that is selected goes into the URL.

    names  one per row
    into   the URL's parameter
    to     the page that is opened then; None: this one stays
    """
    def note() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        if rows:
            remember(into, names[rows[0]])
            st.session_state[GOES] = to

    if st.session_state.get(GOES) is not None:
        go_to(st.session_state.pop(GOES))

    st.dataframe(table, hide_index=True, key=key, on_select=answering(note), height=height,
                 selection_mode="single-row", column_config=config)


def go_to(page: str) -> None:
    """Open another page, where there are several."""
    if "pages" in st.session_state:
        st.switch_page(st.session_state["pages"][page])
