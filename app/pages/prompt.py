"""Prompt: a text that is typed, its codes on the map, what comes next, and what a patch changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from latentcode.app.charts.map import Pin
from latentcode.app.language.page import (
    EDITED,
    GOES,
    MOST_CHARACTERS,
    PAIR,
    PROMPT,
    SOURCE,
    show_progress,
    show_read,
    take,
    typed,
)
from latentcode.app.language.pair import neighbour_table, pair_of, show_neighbours
from latentcode.app.language.passes import (
    OF_KEYS,
    SITES,
    Patch,
    Seen,
    encoded,
    other_sources,
    patched,
    see,
)
from latentcode.app.language.planes import Plane, choose_plane, plane_of, show_pairs
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import editing, shown, text_of
from latentcode.app.language.work import Job
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import choose, choose_several, remember, remembered
from latentcode.app.words import literal, shortened
from latentcode.errors import ConfigError

HEIGHT = 360
MOST = 128
"""Tokens of a prompt."""
FIRST = 12
"""Tokens of the first text that the page opens on."""
OTHERS, OFFERED = 8, 4
"""Other sources, the control of a patch; and those that are offered to be clicked."""
NEXT = 8
"""Next tokens that are shown."""
NAMED = 6
"""Codes of a prompt that have their key's name on the map, those of the most attention."""


def page() -> None:
    """Show a prompt of the language model."""
    show_read("A prompt for {}", _body)


@guarded
def _body(job: Job) -> None:
    read = job.read
    assert read is not None
    st.markdown(f"##### A prompt for {literal(job.title)}")
    show_progress(job, read)
    if not job.opened.is_set():
        st.info(f"Opening {literal(job.title)}; the prompt is read when it is there.",
                icon=":material/hourglass_empty:")
        return
    prompt = typed("Prompt", PROMPT, _opening(job, read), help="Press Enter to read it.")
    edited = _edited(prompt)
    before = see(job, encoded(job, prompt, MOST))
    after = None if edited == prompt else see(job, encoded(job, edited, MOST))
    _shown(job, read, before, after)
    st.divider()
    _patched(job, read, before, prompt, edited)


def _edited(prompt: str) -> str:
    """Let a word of the prompt be changed in place, and return what it becomes."""
    edited = (remembered(EDITED) or prompt)[:MOST_CHARACTERS]
    st.caption("**Click a word** to change it, and see what moves.")
    editing(prompt, edited, lambda text: take(EDITED, None if text == prompt else text),
            key="edit", most=MOST_CHARACTERS)
    return edited


def _opening(job: Job, read: Read) -> str:
    """Return the beginning of the first text."""
    return text_of(job.wait_for_model(), read.tokens[0][:FIRST].tolist())


def _shown(job: Job, read: Read, before: Seen, after: Seen | None) -> None:
    """Show the codes of a prompt on the map, and what comes next."""
    layer, method, colour = choose_plane(list(read.layers))
    left, right = st.columns([1.3, 1.0], gap="medium")
    names = [shown(piece) for piece in before.pieces]
    with right:
        one, two = st.columns(2)
        with one:
            listed = options(names)
            query = listed.index(choose("Query", listed, key="p_query", default=listed[-1],
                                        help="The token whose codes are shown."))
        with two:
            keys = listed[:query + 1]
            size = abs(before.codes(query)).sum((1, 2))
            best = int(size[1:].argmax()) + 1 if len(size) > 1 else 0
            key = keys.index(choose("Key", keys, key="p_key", default=keys[best],
                                    help="With which key; at first the one, but for the first "
                                         "token, that heads attend to most."))
    plane = plane_of(job, read, layer, method)
    latest = before if after is None else after
    found = pins_of(latest, min(query, len(latest.tokens) - 1), read, layer, plane,
                           None if after is None else before)
    with left:
        def noted(selection: Selection) -> None:
            if selection.instances:
                remember(PAIR, pair_of(read, selection.instances[0]).name)
                st.session_state[GOES] = "texts"  # the table below leads there

        show_pairs(job, read, plane, layer, method, colour, noted, height=HEIGHT, pins=found,
                   alt="Codes of texts, and of the prompt among them.")
        was = ("" if after is None else "; white: before the edit" if len(after.tokens) == len(
            before.tokens) else "; of the edited prompt alone, which has other tokens")
        st.caption(literal(
            f"Diamonds: the codes of {latest.pieces[min(query, len(latest.tokens) - 1)].strip()} "
            f"with each key up to it{was}; {plane.how_placed}. A click on a point opens its pair."))
        show_near(read, before, query, key, layer)
    with right:
        passes = {"prompt": before.p} if after is None else {
            "before": before.p, "after": after.p}
        st.markdown("**What comes next**" + ("" if after is None else literal(
            f", before and after: {changed_words(before, after)}")))
        show_next(job, passes, "next tokens")
        if after is not None:
            moved = distance_moved(before, after, query, key, layer, read)
            if moved is not None:
                st.caption(literal(f"The edit moves the code of {names[query]} → {names[key]} "
                                   f"by {moved}."))


def _patched(job: Job, read: Read, before: Seen, prompt: str, edited: str) -> None:
    """Let a person patch from a source prompt, and show what comes next."""
    st.markdown("##### What if the prompt had what a source has?")
    written = typed("Source", SOURCE, edited, help="Another prompt, whose activations are put into "
                                                   "the prompt above, the base.")
    _offer_sources(job, read, len(before.tokens))
    if written == prompt:
        st.caption("Click a source, or type one: the prompt with another word, such as another "
                   "country. A word changed above and a pair of *Codes of texts* give one, too.")
        return
    source = see(job, encoded(job, written, MOST))
    patch = _choose_patch(read, before, source)
    if patch is None:
        return
    others = other_sources(read.tokens, len(source.tokens), OTHERS)
    try:
        patch.check()
    except ConfigError as error:
        st.info(literal(error), icon=":material/info:")
        return
    found = patched(job, before.tokens, source.tokens, patch, others)
    own, theirs = int(before.p.argmax()), int(source.p.argmax())
    one, other = (f"\u201c{piece}\u201d" for piece in job.wait_for_model().texts([own, theirs]))
    said = int(found.p.argmax())
    verdict = ("the base's own next token stays the likeliest" if said == own
               else "the source's next token comes" if said == theirs
               else "another token comes than the base's or the source's")
    if own == theirs:
        verdict = ("base and source say the same, so that the patch cannot be told from none")
    st.markdown(f"**After the patch {literal(verdict)}.**")
    show_next(job, {"base": before.p, "patched": found.p, "source": source.p}, "patched tokens")
    if len(others):
        control = found.others[:, theirs]
        st.caption(literal(
            f"p of the source's {other}: {before.p[theirs]:.1%} before, {found.p[theirs]:.1%} "
            f"patched; patched from {len(others)} other texts instead {control.mean():.1%} on "
            f"average ({control.min():.1%} to {control.max():.1%}). p of the base's {one}: "
            f"{before.p[own]:.1%} before, {found.p[own]:.1%} patched, "
            f"{found.others[:, own].mean():.1%} from others."))
    else:
        st.caption(f"No text has {len(source.tokens)} tokens, so that there are no others to patch "
                   "from, the control.")
    st.caption((":material/check_circle: What the base has itself, written back, leaves every bit "
                "as it is." if found.exact else ":material/error: What the base has itself, "
                "written back, changes the output: do not trust this patch.")
               + " One prompt proves nothing: `lc.intervene` asks many, with controls.")


def _offer_sources(job: Job, read: Read, length: int) -> None:
    """Offer the beginnings of some texts, as long as the base, to be clicked as the source."""
    with st.container(horizontal=True, gap="small", key="sources"):
        for number, ids in enumerate(other_sources(read.tokens, length, OFFERED, seed=1)):
            text = text_of(job.wait_for_model(), ids)
            st.button(literal(shown(shortened(text, 48))), key=f"source {number}",
                      help="Take it as the source.", on_click=answering(take),
                      args=(SOURCE, text[:MOST_CHARACTERS]))


def _choose_patch(read: Read, base: Seen, source: Seen) -> Patch | None:
    """Let a person choose what is put where; None while something is missing."""
    of_base, of_source = (options([shown(piece) for piece in seen.pieces])
                          for seen in (base, source))
    first, second, third = st.columns(3)
    with first:
        site = choose("Site", list(SITES), key="lm_site", help="codes: attention of a query to a "
                      "key; values: of a key, by head; z: what a head puts out at a query; "
                      "residual stream: what enters the layer at a query.")
    with second:
        layers = choose_several("Layers", list(read.layers), key="lm_layers",
                                default=list(read.layers))
    with third:
        heads = [] if site == "residual stream" else choose_several(
            "Heads (none chosen: all)", range(read.n_heads), key="lm_heads")
    if not layers:
        st.info("Choose at least one layer.", icon=":material/layers:")
        return None
    keys = site in OF_KEYS
    columns = st.columns(4 if keys else 2)
    half = len(columns) // 2
    query, key = _choose_places(columns[:half], "base", of_base)
    source_query, source_key = _choose_places(columns[half:], "source", of_source)
    return Patch(site, tuple(sorted(layers)), tuple(sorted(heads)) or None, query, source_query,
                 key, source_key)


def _choose_places(
    columns: Sequence[DeltaGenerator], whose: str, listed: list[str]
) -> tuple[int, int | None]:
    """Return the query and, of sites that have one, the key, in a column each; None for all."""
    with columns[0]:
        query = listed.index(choose(f"Query of the {whose}", listed, key=f"{whose}_query",
                                    default=listed[-1]))
    if len(columns) == 1:
        return query, None
    every = "all keys"
    with columns[1]:
        key = choose(f"Key of the {whose}", [every, *listed[:query + 1]], key=f"{whose}_key")
    return query, None if key == every else listed.index(key)


def position(names: Sequence[str], chosen: str) -> int:
    """Return the position of an option of `options`."""
    return options(names).index(chosen)


def options(names: Sequence[str]) -> list[str]:
    """Return tokens as options, each once: with their position."""
    return [f"{i}: {name}" for i, name in enumerate(names)]


def flat_codes(codes: np.ndarray, read: Read, layer: int | None) -> np.ndarray:
    """Return codes [K, L, H] of a layer, or of all, as the plane has them, [K, d]."""
    of = codes if layer is None else codes[:, [read.layers.index(layer)]]
    return of.reshape(len(of), -1).astype(np.float64)


def pins_of(
    seen: Seen, query: int, read: Read, layer: int | None, plane: Plane, before: Seen | None = None
) -> list[Pin]:
    """Return where the codes of a query with all keys lie on the map, those of the most attention
    first, which are named.

    before  the prompt before it was edited, of as many tokens: a line leads from its codes
    """
    def placed(of: Seen) -> np.ndarray:
        return plane.place(flat_codes(of.codes(query), read, layer))

    at = placed(seen)
    was = None if before is None or len(before.tokens) != len(seen.tokens) else placed(before)
    size = np.abs(flat_codes(seen.codes(query), read, layer)).sum(1)
    return [Pin((float(at[k, 0]), float(at[k, 1])), shown(seen.pieces[k]) if i < NAMED else "",
                None if was is None else (float(was[k, 0]), float(was[k, 1])))
            for i, k in enumerate(np.argsort(-size, kind="stable").tolist())]


def next_tokens(job: Job, passes: dict[str, np.ndarray]) -> pd.DataFrame:
    """Return the tokens that are the likeliest next in any of some passes, with p of each.

    passes  name -> p [V]
    """
    ids: list[int] = []
    per = max(3, NEXT // len(passes))
    for p in passes.values():
        ids += [i for i in np.argsort(-p, kind="stable")[:per].tolist() if i not in ids]
    pieces = job.wait_for_model().texts(ids)
    return pd.DataFrame({"next token": [shown(piece) for piece in pieces],
                         **{name: p[ids] for name, p in passes.items()}})


def show_next(job: Job, passes: dict[str, np.ndarray], key: str) -> None:
    """Show the table of next tokens."""
    most = max(float(p.max()) for p in passes.values())
    st.dataframe(next_tokens(job, passes), hide_index=True, key=key, column_config={
        name: st.column_config.ProgressColumn(
            format="percent", min_value=0.0, max_value=most, width="small")
        for name in passes})


def changed_words(before: Seen, after: Seen) -> str:
    """Say in which tokens two prompts differ."""
    if len(before.pieces) != len(after.pieces):
        return f"{len(before.pieces)} tokens before, {len(after.pieces)} after"
    different = [i for i, (a, b) in enumerate(zip(before.tokens, after.tokens, strict=True))
                 if a != b]
    return ("the same tokens" if not different else "; ".join(
        f"{shown(before.pieces[i])} → {shown(after.pieces[i])}" for i in different[:4]))


def distance_moved(
    before: Seen, after: Seen, query: int, key: int, layer: int | None, read: Read
) -> str | None:
    """Say how far an edit moves the code of a pair; None where the prompts have other lengths."""
    if len(before.tokens) != len(after.tokens):
        return None
    a, b = (flat_codes(seen.codes(query), read, layer)[key] for seen in (before, after))
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return f"1 - cosine {1 - float(a @ b) / size:.3f}" if size else None


def show_near(
    read: Read, seen: Seen, query: int, key: int, layer: int | None
) -> None:
    """List the nearest codes of the sample to that of a pair of a prompt."""
    show_neighbours(read, neighbour_table(read, seen.codes(query)[key], layer),
                    "near prompt", "texts")
