"""The central claims as a story: verdict, sentence, picture, and where to look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st

from latentcode.app.charts.theme import STACKS
from latentcode.app.data.evidence import Evidence
from latentcode.app.data.story import SAME, Chapter, story
from latentcode.app.state.messages import answering
from latentcode.app.words import literal

MARKS: Mapping[str, tuple[str, str, str, str]] = {
    "agrees": ("✔", "green", "#00704F", "#4CD3A5"),
    "differs": ("✘", "orange", "#B34700", "#FF9D5C"),
    "undecided": ("?", "blue", "#0B5F96", "#7CC4F2"),
    "not run": ("○", "gray", "#5B6672", "#9AA6B2")}
"""Verdict -> its symbol, its colour by the name that Streamlit has for it, in a table on light and
on dark."""
STYLE = """<style>
[class*="st-key-evidence-figure"] {background: #fff; border: 1px solid rgba(128, 128, 128, .45);
    border-radius: 8px; padding: 10px;}
[class*="st-key-evidence-figure"] img {max-width: 100%;}
</style>"""
"""Figures have a white ground in either theme."""
WIDE = """<style>
[data-testid="stDialog"] [role="dialog"] {width: 94vw; max-width: 94vw;}
.st-key-evidence-large {background: #fff; padding: 10px;}
</style>"""
"""A figure that is opened has the width of the window."""


def show_story(found: Evidence, look: Callable[[str, str], None]) -> None:
    """Show the central claims, two in a row.

    look  goes to a claim ("claim", its id), or to all of a verdict ("verdict", which)
    """
    chapters = story(found)
    for row in range(0, len(chapters), 2):
        with st.container(key=f"{STACKS} story {row}"):
            for i, column in enumerate(st.columns(2, gap="large")):
                if row + i < len(chapters):
                    with column:
                        _show(row + i, chapters[row + i], look)


def _show(number: int, chapter: Chapter, look: Callable[[str, str], None]) -> None:
    st.markdown(f"**{number + 1}. {literal(chapter.title)}**" + (
        "  \n" + " ".join(badge(verdict, whose) for whose, verdict in chapter.verdicts)
        if chapter.verdicts else ""))
    st.markdown(chapter.text)
    if chapter.picture is not None:
        with st.container(key=f"evidence-figure-{number}"):
            st.image(chapter.picture.read_bytes(), width="stretch", alt=chapter.title)
    with st.container(horizontal=True, vertical_alignment="center"):
        if chapter.claim:
            st.button("The claim and its data", key=f"story claim {number}", type="tertiary",
                      icon=":material/fact_check:", on_click=answering(look),
                      args=("claim", chapter.claim))
        if chapter.shows:
            st.button("List them", key=f"story list {number}", type="tertiary",
                      icon=":material/list:", on_click=answering(look),
                      args=("verdict", chapter.shows))
        if chapter.picture is not None and st.button(
                "Open large", key=f"story figure {number}", type="tertiary",
                icon=":material/open_in_full:"):
            show_large(chapter.picture.read_bytes(), chapter.title)
        if chapter.page is not None and "pages" in st.session_state:
            name, label = chapter.page
            st.page_link(st.session_state["pages"][name], label=label,
                         icon=":material/arrow_forward:")


def badge(verdict: str, whose: str = "") -> str:
    """Return a verdict as Markdown, in its colour; of a study's statement in the study's word."""
    symbol, colour, *_ = MARKS.get(SAME.get(verdict, verdict), MARKS["undecided"])
    return f":{colour}-badge[{symbol} {literal(f'{whose} {verdict}'.strip())}]"


@st.dialog("The figure", width="large")
def show_large(picture: bytes | Path, name: str) -> None:
    """Show a figure as wide as the window."""
    st.html(WIDE)
    with st.container(key="evidence-large"):
        st.image(picture, width="stretch", alt=name)
