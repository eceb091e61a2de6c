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
    from latentcode.runs.named import load_run

    return load_run(name_or_path)


def print_metrics(run: Run) -> None:
    """Print the newest means on every split, then those of single rules or terms.

    The latter come from the card where the run was trained before they were measured.
    """
    import pandas as pd

    from latentcode.metrics import is_by_constituent
    from latentcode.runs.named import CARD
    from latentcode.zoo.card import Card

    latest, constituents = run.latest(), run.latest(by_constituent=True)
    if constituents.empty and (run.path / CARD).is_file():
        constituents = pd.DataFrame({
            split: {name: m.mean for name, m in found.items() if is_by_constituent(name)}
            for split, found in Card.read(run.path).metrics.items()})
    if not latest.empty:
        print(latest.to_string(na_rep=""))
    if not constituents.empty:
        table = constituents.to_string(na_rep="", float_format="{:.3f}".format)
        print(f"\nby constituent\n{table}")


__all__ = ["RunName", "RunNames", "open_run", "print_metrics"]
