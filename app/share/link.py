"""The button at the head of every page that copies the link of its view."""

from __future__ import annotations

from latentcode.app.assets import own_component
from latentcode.app.share.address import VERSION, checksums, shown_models


def show_link() -> None:
    """Offer the link of the page that is shown, with the checksums of its models' weights."""
    own_component(__name__, "link")(key="link of the view", data={
        "version": VERSION, "weights": dict(checksums(shown_models()))})
