"""`latentcode explore`: browse codes in the web browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Explore:
    """Browse codes, probes and interventions in the web browser.

    Opens on the models that come with the library; runs and codes below the given folders can be
    chosen beside them. Example: latentcode explore runs/
    """

    folders: tyro.conf.Positional[tuple[Path, ...]] = field(default=())
    """Runs, codes, or folders that hold some; default: the current folder. Nothing outside them
    is read."""
    port: int | None = None
    """Port of the page; default: the first free one from 8501."""
    no_browser: bool = False
    """Do not open a browser window."""

    def run(self) -> None:
        from latentcode.app.server import serve

        status = serve(self.folders, port=self.port, browser=not self.no_browser)
        if status:
            raise SystemExit(status)


__all__ = ["Explore"]
