"""The link of a view: what its address says beside the view, and the button that copies it.

`v` says by which rules the rest is read. A link that was copied has `weights` too, so that whoever
opens it is told where a model is not the one that was looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from latentcode.app.assets import own_component
from latentcode.app.data import loaded
from latentcode.app.state.url import ASKED, remember, remembered
from latentcode.app.words import literal, shortened
from latentcode.errors import LatentCodeError

VERSION = 1
"""Of the addresses written now; it is raised when a name in them gets another meaning."""
NUMBER, WEIGHTS = "v", "weights"
"""Names in the address."""
DIGITS, OF, AND = 8, "~", "|"
"""Of a checksum; between it and its model; between two models."""
PAGE, SAID = "page of the checksums", "said what the address lost"
"""Names in the session."""


def say_what_came(page: str) -> None:
    """Say, above a page, that its address has another version of the format.

    Checksums belong to the page whose link has them.
    """
    if st.session_state.setdefault(PAGE, page) != page:
        st.session_state[PAGE] = page
        st.session_state.pop(WEIGHTS, None)
    version = remembered(NUMBER)
    if version not in (None, str(VERSION)):
        st.warning(literal(
            f"This link was made by another version of latentcode: its addresses have format "
            f"{version[:8]}, these {VERSION}. What it means here is shown."),
            icon=":material/update:")
    remember(NUMBER, str(VERSION))


def say_what_is_lost(where: DeltaGenerator) -> None:
    """Say, above a page that was shown, what its address cannot bring: weights, unknown parts."""
    if changed := changed_weights(remembered(WEIGHTS) or ""):
        where.warning(literal(
            f"The weights of {', '.join(changed)} are not those that this link was made with: what "
            "you see may differ from what was seen."), icon=":material/history:")
    unknown = [] if SAID in st.session_state else [*st.session_state.get(ASKED, ())]
    st.session_state[SAID] = True
    if unknown:
        named = ", ".join(shortened(name, 40) for name in unknown[:8])
        where.warning(literal(f"Parts of this link mean nothing on this page, and are left out: "
                           f"{named}."), icon=":material/link_off:")


def changed_weights(text: str) -> list[str]:
    """Return the models whose weights are not those that a link names; nothing it cannot read."""
    models = set(shown_models())
    named = [part.partition(OF) for part in text.split(AND) if OF in part]
    return [key for known, _, key in named
            if key in models and checksum(key) not in (known, None)]


def shown_models() -> list[str]:
    """Return the models that the page shows, by their names in the address."""
    one, several = st.session_state.get("model"), st.session_state.get("models")
    listed = several if isinstance(several, list | tuple) else []
    return list(dict.fromkeys(key for key in (one, *listed) if isinstance(key, str)))


def checksums(keys: Iterable[str]) -> Mapping[str, str]:
    """Return the checksum of each model that has one."""
    return {key: known for key in keys if (known := checksum(key)) is not None}


def checksum(key: str) -> str | None:
    """Return the beginning of the SHA-256 of a model's newest weights, or of codes, as stored.

    None where there are none, or none that can be read: the page says that itself.
    """
    try:
        entry = loaded.entry(key)
        if entry.kind == "codes":
            meta = json.loads((entry.path / "meta.json").read_text(encoding="utf-8"))
            known = meta["sha256"].get("codes.safetensors")
        else:
            run = loaded.open_run(entry.path)
            step = loaded.newest_step(run)
            known = (None if step is None
                     else run.load_checkpoint(step).sha256.get("model.safetensors"))
    except (LatentCodeError, OSError, ValueError, KeyError, AttributeError):
        return None
    return None if known is None else str(known)[:DIGITS]


def show_link() -> None:
    """Offer the link of the page that is shown, with the checksums of its models' weights."""
    own_component(__name__, "link")(key="link of the view", data={
        "version": VERSION, "weights": dict(checksums(shown_models()))})
