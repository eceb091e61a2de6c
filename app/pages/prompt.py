"""Prompt: a text that is typed, what comes next, and what an edit or a patch changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from latentcode.app.language.page import (
    EDITED,
    MOST_CHARACTERS,
    PROMPT,
    SOURCE,
    show_progress,
    show_read,
    take,
    typed,
)
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
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import editing, shown, text_of
from latentcode.app.language.work import Job
from latentcode.app.state.messages import answering, guarded
from latentcode.app.state.url import choose, choose_several, remembered
from latentcode.app.words import literal, shortened
from latentcode.errors import ConfigError

MOST = 128
"""Tokens of a prompt."""
FIRST = 12
"""Tokens of the first text that the page opens on."""
OTHERS, OFFERED = 8, 4
"""Other sources, the control of a patch; and those that are offered to be clicked."""
NEXT = 8
"""Next tokens that are shown."""


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
    first = text_of(job.wait_for_model(), read.tokens[0][:FIRST].tolist())
    prompt = typed("Prompt", PROMPT, first, help="Press Enter to read it.")
    edited = (remembered(EDITED) or prompt)[:MOST_CHARACTERS]
    st.caption("**Click a word** to change it, and see what moves.")
    editing(prompt, edited, lambda text: take(EDITED, None if text == prompt else text),
            key="edit", most=MOST_CHARACTERS)
    before = see(job, encoded(job, prompt, MOST))
    after = None if edited == prompt else see(job, encoded(job, edited, MOST))
    passes = {"prompt": before.p} if after is None else {"before": before.p, "after": after.p}
    st.markdown("**What comes next**" + ("" if after is None else literal(
        f", before and after: {changed_words(before, after)}")))
    show_next(job, passes, "next tokens")
    st.divider()
    _patched(job, read, before, prompt, edited)


def _patched(job: Job, read: Read, before: Seen, prompt: str, edited: str) -> None:
    """Let a person patch from a source prompt, and show what comes next."""
    st.markdown("##### What if the prompt had what a source has?")
    written = typed("Source", SOURCE, edited, help="Another prompt, whose activations are put into "
                                                   "the prompt above, the base.")
    _offer_sources(job, read, len(before.tokens))
    if written == prompt:
        st.caption("Click a source, or type one: the prompt with another word, such as another "
                   "country. A word changed above and a pair of *Texts* give one, too.")
        return
    source = see(job, encoded(job, written, MOST))
    patch = _choose_patch(read, before, source)
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


def _choose_patch(read: Read, base: Seen, source: Seen) -> Patch:
    """Let a person choose what is put where."""
    of_base, of_source = (options([shown(piece) for piece in seen.pieces])
                          for seen in (base, source))
    first, second, third = st.columns(3)
    with first:
        site = choose("Site", list(SITES), key="lm_site", help="codes: attention of a query to a "
                      "key; values: of a key, by head; z: what a head puts out at a query; "
                      "residual stream: what enters the layer at a query.")
    with second:
        layers = choose_several("Layers (none chosen: all)", list(read.layers), key="lm_layers",
                                default=list(read.layers)) or list(read.layers)
    with third:
        heads = [] if site == "residual stream" else choose_several(
            "Heads (none chosen: all)", range(read.n_heads), key="lm_heads")
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


def options(names: Sequence[str]) -> list[str]:
    """Return tokens as options, each once: with their position."""
    return [f"{i}: {name}" for i, name in enumerate(names)]


def show_next(job: Job, passes: dict[str, np.ndarray], key: str) -> None:
    """Show the tokens that are the likeliest next in any of some passes, with p of each.

    passes  name -> p [V]
    """
    ids: list[int] = []
    per = max(3, NEXT // len(passes))
    for p in passes.values():
        ids += [i for i in np.argsort(-p, kind="stable")[:per].tolist() if i not in ids]
    pieces = job.wait_for_model().texts(ids)
    table = pd.DataFrame({"next token": [shown(piece) for piece in pieces],
                          **{name: p[ids] for name, p in passes.items()}})
    most = max(float(p.max()) for p in passes.values())
    st.dataframe(table, hide_index=True, key=key, column_config={
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
