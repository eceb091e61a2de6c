"""`latentcode explore`: browse codes in the web browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
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
        Annotated[tuple[str, ...], default_is("the current folder")]] = field(default=())
    """Runs, codes, or folders that contain them, models that come with the library, or
    hf://user/name. Nothing outside them is read."""
    port: Annotated[int | None, default_is("the first free one from 8501")] = None
    """Port of the page."""
    no_browser: bool = False
    """Do not open a browser window."""

    def run(self) -> None:
        from latentcode.app.server import serve

        with TemporaryDirectory() as copies:
            folders = [_here(folder, Path(copies)) for folder in self.folders]
            status = serve(folders, port=self.port, browser=not self.no_browser)
        if status:
            raise SystemExit(status)


def _here(folder: str, copies: Path) -> Path:
    """Return a folder, that of a model of the zoo, or a copy of what lies at an address on the hub.

    The cache of the hub is made of links, and the explorer follows none out of its folders.
    """
    import shutil

    from latentcode.hub.address import is_address, origin
    from latentcode.hub.download import fetch
    from latentcode.runs.named import ZOO_PREFIX, folder_of, zoo_folders

    if not is_address(folder):
        is_model = folder in zoo_folders() or folder.startswith(ZOO_PREFIX)
        return folder_of(folder) if is_model else Path(folder)
    downloaded = fetch(folder)
    known = origin(downloaded)
    assert known is not None
    assert known.revision is not None
    copy = copies / known.revision / known.repo
    shutil.copytree(downloaded, copy, dirs_exist_ok=True)
    return copy
