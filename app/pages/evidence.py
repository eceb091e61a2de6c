"""Evidence: the central claims as a story, then every claim with verdict, figure and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from latentcode.app.beside.story import MARKS, STYLE, badge, show_large, show_story
from latentcode.app.charts.tables import show_whole
from latentcode.app.charts.theme import STACKS, is_dark
from latentcode.app.data.evidence import (
    PRESETS,
    Evidence,
    compared,
    evidence,
    matching,
    name_of_test,
    own_number,
    titled,
)
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal
from latentcode.experiments.paper import cost
from latentcode.experiments.paper.results import RESULT, remarks
from latentcode.experiments.paper.wording import COUNTED, ours, published, rule

LIST_KEY, VERDICT_KEY, FIGURE_KEY, WORDS_KEY = (
    "list of claims", "verdict shown", "figure shown", "words of claims")
ALL, WORDS, MOST_WORDS = "all", "words", 80
HEIGHT, ROW = 590, 64
"""Of the list, which ends above the fold, and of its rows, in which text has three lines."""
MOST_TESTS, TESTS_HEIGHT = 4, 230
"""More tests of a claim than this are scrolled, in a box of so many pixels."""
SAID: Mapping[str, str] = {**COUNTED, "not run": "not run"}
"""Verdict -> its verb behind a number, in few words."""


def page() -> None:
    """Show the claims, and the one that was clicked."""
    _body()


@st.fragment
@guarded
def _body() -> None:
    found = evidence()
    st.html(STYLE)
    st.markdown("##### What the paper claims, and what we find")
    if any(remembered(name) for name in ("claim", "verdict", "figure", WORDS)):
        st.button("The central claims", key="story", type="tertiary", icon=":material/arrow_back:",
                  on_click=answering(_back_to_the_story))
    else:
        show_story(found, remember)
        st.markdown("##### Every claim")
    verdict = _verdict(found)
    with st.container(key="evidence-filters"):
        left, right = st.columns([1, 2], vertical_alignment="bottom")
        with left:
            figure = _figure(found)
        with right:
            words = _words()
    shown = matching(found.table, words)
    shown = shown if verdict is None else shown[shown["verdict"] == verdict]
    shown = shown if figure is None else shown[shown["result"] == figure]
    claim = _asked("claim", list(found.claims))
    if claim is not None and claim not in shown.index:
        remember("claim", None)  # which the list has no more
        claim = None
    with st.container(key=f"{STACKS} evidence"):
        left, right = st.columns([1.35, 1.0], gap="medium")
        with left:
            _list(shown, len(found.claims), f"{verdict} {figure} {words}")
            _caption(found)
        with right:
            if claim is not None:
                _claim(found, claim)
            elif figure is not None:
                _result(found, figure)
            else:
                st.info("Click a claim to see what was measured, its figure and its data.",
                        icon=":material/touch_app:")


def _back_to_the_story() -> None:
    for name in ("claim", "verdict", "figure", WORDS):
        remember(name, None)


def _words() -> str:
    """Let a person search; the words are in the address."""
    st.session_state[WORDS_KEY] = (remembered(WORDS) or "")[:MOST_WORDS]
    st.text_input(
        "Search", key=WORDS_KEY, type="search", live=True, icon=":material/search:",
        max_chars=MOST_WORDS, on_change=answering(
            lambda: remember(WORDS, st.session_state[WORDS_KEY].strip() or None)),
        placeholder="words of a claim, a figure or a table: HYLA ahead, Fig. 2D, 80 %")
    return str(st.session_state[WORDS_KEY])


def _asked(key: str, known: Sequence[str]) -> str | None:
    """Return what the URL asks for, if it is there; otherwise a message says that it is not."""
    asked = remembered(key)
    if asked is None or asked in known:
        return asked
    remember(key, None)
    st.warning(literal(f"There is no {key} {asked[:60]!r} here."), icon=":material/link_off:")
    return None


def _verdict(found: Evidence) -> str | None:
    """Let a person choose one verdict, by buttons that count the claims; None for all."""
    st.session_state[VERDICT_KEY] = _asked("verdict", list(COUNTED))
    counts, own = found.counts(), found.counts(own=True)
    st.segmented_control(
        "Verdict", list(COUNTED), key=VERDICT_KEY, label_visibility="collapsed",
        format_func=lambda name: f":{MARKS[name][1]}[{MARKS[name][0]}] **{counts[name]}** "
                                 f"{SAID[name]}",
        on_change=answering(lambda: remember("verdict", st.session_state[VERDICT_KEY])),
        help="Click to see these alone; click again for all.")
    if any(own.values()):
        said = ", ".join(f"{n} {SAID[verdict]}" for verdict, n in own.items() if n)
        st.caption(f"{sum(own.values())} of the {sum(counts.values())} are questions of our own, "
                   f"not claims of the paper (where: *ours*): {said}.")
    return _asked("verdict", list(COUNTED))


def _figure(found: Evidence) -> str | None:
    """Let a person choose a figure or table; None for all."""
    names = list(found.results["paper"])
    st.session_state[FIGURE_KEY] = _asked("figure", names) or ALL

    def noted() -> None:
        chosen = st.session_state[FIGURE_KEY]
        remember("figure", None if chosen == ALL else chosen)
        remember("claim", None)

    st.selectbox("Figure or table", [ALL, *names], key=FIGURE_KEY, on_change=answering(noted),
                 format_func=lambda name: name if name == ALL else titled(name))
    return _asked("figure", names)


def _list(shown: pd.DataFrame, n: int, what: str) -> None:
    """Show claims, one a row, that open on a click."""
    if shown.empty:
        st.info(f"None of the {n} claims matches.", icon=":material/search_off:")
        return
    marked = shown.drop(columns="result").reset_index(drop=True)
    marked["verdict"] = [f"{MARKS[name][0]} {name}" for name in shown["verdict"]]
    colours = [f"color: {MARKS[name][3 if is_dark() else 2]}; font-weight: 600"
               for name in shown["verdict"]]
    ids = shown.index.to_list()
    # Another list has another key: its rows are other claims than those that were clicked.
    key = f"{LIST_KEY} {what}"
    st.dataframe(
        marked.style.apply(lambda _: colours, subset=["verdict"]), key=key, hide_index=True,
        height=min(HEIGHT, 40 + ROW * len(ids)), row_height=ROW, selection_mode="single-cell",
        on_select=answering(lambda: note_clicked(key, ids)), placeholder="",
        column_order=["verdict", "source", "claim", "published", "ours", "runs"],
        column_config={
            "source": st.column_config.TextColumn("where", width=130),
            "claim": st.column_config.TextColumn(width=245),
            "published": st.column_config.TextColumn(width=75),
            "ours": st.column_config.TextColumn(
                width=80, help="The number; of several tests, the range. Differences have a sign."),
            "verdict": st.column_config.TextColumn(width=100),
            "runs": st.column_config.NumberColumn(
                width=50, help="Finished runs of the settings in question; empty where the claim "
                               "is about the task or the settings alone.")},
        alt="Claims of the paper with the published value, ours, the verdict and the number of "
            "runs.")
    st.caption(f"{len(ids)} of {n} claims. **Click one** to open it.")


def note_clicked(key: str, ids: Sequence[str]) -> None:
    """Put the claim of the cell that is clicked into the URL."""
    cells = st.session_state[key]["selection"]["cells"]
    if cells and cells[0][0] < len(ids):
        remember("claim", ids[cells[0][0]])


def _caption(found: Evidence) -> None:
    st.caption("The rule of each verdict was written down before the long runs. A difference that "
               "is merely not significant is *undecided*. The paper's claims are judged on runs of "
               "the published setting only.")
    if found.missing:
        st.caption(":material/info: There is no result for "
                   f"{', '.join(map(titled, found.missing))}; their claims are not counted.")
    for why in found.damaged:
        st.warning(literal(why), icon=":material/broken_image:")


def _claim(found: Evidence, name: str) -> None:
    """Show what a claim says, by which rule it was judged, and what was found."""
    claim, row = found.claims[name], found.table.loc[name]
    st.markdown(badge(claim["verdict"]))
    st.markdown(f"##### {literal(claim['claim'])}")
    st.caption(literal(f"{claim['source']} · `{name}`"))
    unit = "points" if claim["published"] and claim["published"]["unit"] == "points" else ""
    numbers = {"Published": f"{published(claim)} {unit}".strip() or "no number",
               own_number(claim): ours(claim) or (
                   "not run" if claim["verdict"] == "not run" else "too few runs"),
               "Runs": "none needed" if pd.isna(row["runs"]) else str(row["runs"])}
    with st.container(horizontal=True, gap="large"):
        for title, value in numbers.items():
            st.markdown(f"{title}<br>**{literal(value)}**", unsafe_allow_html=True, width="content")
    st.markdown(f"**What is compared.** {literal(compared(claim))}")
    if len(claim["parts"]) > 1:
        _numbers(claim)
    st.markdown(f"**What we find.** {literal(claim['why'])}")
    if claim["needs"]:
        price = f" ({cost.in_words(claim['cost'])})" if claim["cost"] else ""
        st.markdown(f"**What would decide it.** {literal(claim['needs'] + price)}.")
    if claim["verdict"] == "differs" and name in remarks():
        st.markdown(f"**What was tried.** {literal(remarks()[name])}")
    with st.expander("How it was judged"):
        st.markdown(f"**The rule.** {literal(rule(claim)).rstrip('.')}.")
        for title, key in (("Our reading", "reading"), ("Known before", "seen")):
            if claim[key]:
                st.markdown(f"**{title}.** {literal(claim[key])}")
        _tests(claim["parts"])
    _result(found, str(row["result"]))


def _numbers(claim: Mapping[str, Any]) -> None:
    """Show what was measured in each of several tests."""
    show_whole(pd.DataFrame({
        "test": [name_of_test(part) for part in claim["parts"]],
        own_number(claim).lower(): [part["estimate"] for part in claim["parts"]],
        "verdict": [f"{MARKS[part['verdict']][0]}\u00a0{part['verdict']}"
                    for part in claim["parts"]],
    }), key="tests", most=MOST_TESTS, height=TESTS_HEIGHT)


def _tests(parts: Sequence[Mapping[str, Any]]) -> None:
    table = pd.DataFrame(parts)[["name", "verdict", "estimate", "low", "high", "p", "n"]]
    table["verdict"] = [f"{MARKS[name][0]} {name}" for name in table["verdict"]]
    table["n"] = [", ".join(map(str, n)) for n in table["n"]]
    st.dataframe(table, hide_index=True, column_config={
        name: st.column_config.NumberColumn(format="%.3g") for name in ("estimate", "low", "high")})


def _result(found: Evidence, name: str) -> None:
    """Show a figure or table, and offer what lies behind it."""
    presets = [preset for preset in PRESETS if name in found.results[preset]]
    st.markdown(f"##### {titled(name)}: {literal(found.results[presets[0]][name]['title'])}")
    # Where no run has the published setting, the picture is that of the smaller models.
    drawn = [preset for preset in presets if found.results[preset][name]["figures"]]
    preset = choose("Runs", presets, key="preset", default=(drawn or presets)[0], form="buttons",
                    help="; ".join(f"{key}: {text}" for key, text in PRESETS.items()))
    result, files = found.results[preset][name], found.files(preset, name)
    if preset == "small":
        st.caption("Scaled down, or measured on stored runs: no verdict.")
    st.markdown(literal(result["summary"]))
    picture = found.picture(preset, name)
    if picture is not None:
        with st.container(key="evidence-figure"):
            st.image(picture, width="content", alt=f"{titled(name)}, {PRESETS[preset]}")
        if st.button("Open large", icon=":material/open_in_full:", key="large figure"):
            show_large(picture, titled(name))
    elif result["figures"]:
        st.info("This installation has the numbers without the figure, which a checkout has in "
                f"experiments/results/reproduced/{preset}/{name}.", icon=":material/image:")
    _downloads(files, f"{preset}-{name}")
    st.code(f"latentcode reproduce {name} --preset {preset}", language="bash")
    if result["missing"]:
        st.caption(f"Still missing: {cost.in_words(result['cost'])}.")
    for note in result["notes"]:
        st.caption(literal(note))
    if result["runs"]:
        with st.expander(f"Runs ({len(result['runs'])})"):
            st.dataframe(pd.DataFrame(result["runs"]).drop(columns=["config", "id"]),
                         hide_index=True)


def _downloads(files: Mapping[str, bytes], prefix: str) -> None:
    """Offer files, tables first."""
    order = (".csv", ".json", ".svg", ".png")
    with st.container(horizontal=True, key="evidence-data"):
        for name in sorted(files, key=lambda name: order.index("." + name.rpartition(".")[2])):
            shown = "all numbers (JSON)" if name == RESULT else name
            st.download_button(shown, files[name], f"{prefix}-{name}", on_click="ignore",
                               icon=":material/download:", key=f"data {prefix} {name}",
                               help=f"{max(1, round(len(files[name]) / 1e3)):,} kB")
