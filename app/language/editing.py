"""A prompt whose words are changed in place: a component of the page."""

from __future__ import annotations

from collections.abc import Callable

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering
from latentcode.app.state.turns import heard, turn


def editing(text: str, edited: str, note: Callable[[str], None], *, key: str, most: int) -> None:
    """Show a prompt as it was edited, and call `note` with the whole of it when a word is changed.

    text  before any edit: words that differ stand beside what they were
    most  characters of a text that is taken
    """
    def noted() -> None:
        told = heard(key, "edited").get("edited")
        if isinstance(told, str) and 0 < len(told) <= most:
            note(told)

    own_component(__name__, "editing")(key=key, on_edited_change=answering(noted),
                                       height="content",
                                       data={"text": text, "edited": edited, "most": most,
                                             "turn": turn(key)})
