"""`latentcode study`: what was asked of many models at once, on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from latentcode.cli.options import default_is


@dataclass(frozen=True)
class Study:
    """Put the questions of a study to its runs, judge its claims, write its page.

    Example: latentcode study attribution

    A study is a YAML file of runs and questions, with a template beside it: one that comes with the
    library, or the path of one's own; CONTRIBUTING.md says how to write one. If interrupted, the
    same command continues where it stopped.
    """

    name: tyro.conf.Positional[str]
    """A study that comes with the library, or a YAML file."""
    out: Annotated[Path | None, default_is("the study's")] = None
    """Folder for the page, its tables and figures."""
    work: Annotated[Path | None, default_is("runs/studies/NAME")] = None
    """Folder where the results of single runs are kept."""
    only: tuple[str, ...] = ()
    """Groups of runs that are asked; what there is of the others stays as it is. Default: all."""
    page: bool = False
    """Ask nothing: judge the claims on the tables that are there, and write the page."""

    def run(self) -> None:
        from latentcode.experiments.evidence.study import study

        parts = study(self.name).parts(self.out, self.only)
        for part in () if self.page else parts:
            part.opened(self.only)  # so that nothing is asked before all runs are there
        for part in parts:
            if self.page:
                print(f"wrote {part.write_page()}")
            else:
                part.run(self.work, only=() if part.plan.apart else self.only)
