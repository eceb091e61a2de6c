"""What is a command pointed at? A run folder, or a trained model that comes with the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from latentcode.runs import Run

RunName = Annotated[str, tyro.conf.arg(
    metavar="RUN", help="A run folder, or a model of the zoo, such as sraven-hyla.")]
"""The argument of a command that takes one run."""
RunNames = Annotated[tuple[str, ...], tyro.conf.arg(
    metavar="RUN [RUN ...]", help="Run folders, or models of the zoo, such as sraven-hyla.")]
"""The argument of a command that takes several."""


def open_run(name_or_path: str) -> Run:
    """Open a run; see `latentcode.zoo.folder_of` for what is a name and what a path."""
    from latentcode.zoo import load_run

    return load_run(name_or_path)


__all__ = ["RunName", "RunNames", "open_run"]
