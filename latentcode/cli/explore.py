"""`latentcode explore`: browse codes in the web browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from latentcode.cli.options import default_is


@dataclass(frozen=True)
class Explore:
    """Browse codes and results in the web browser.

    Example: latentcode explore runs/

    It shows the models that come with the library, and the runs and codes found in the given
    folders.
    """

    folders: tyro.conf.Positional[
        Annotated[tuple[Path, ...], default_is("the current folder")]] = field(default=())
    """Runs, codes, or folders that contain them. Nothing outside them is read."""
    port: Annotated[int | None, default_is("the first free one from 8501")] = None
    """Port of the page."""
    no_browser: bool = False
    """Do not open a browser window."""

    def run(self) -> None:
        from latentcode.app.server import serve

        status = serve(self.folders, port=self.port, browser=not self.no_browser)
        if status:
            raise SystemExit(status)
