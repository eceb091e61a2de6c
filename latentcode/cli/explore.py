"""`latentcode explore`: browse codes in the web browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import tyro

from latentcode.cli.parsing import default_is
from latentcode.errors import check

if TYPE_CHECKING:
    from latentcode.app.language.given import Given


@dataclass(frozen=True)
class Explore:
    """Browse codes and results in the web browser.

    Example: latentcode explore runs/

    It shows the models that come with the library, and the runs and codes found in the given
    folders. Of a language model it shows the codes of texts, its heads, and prompts that you type:
    latentcode explore gpt2 --texts texts.txt
    """

    folders: tyro.conf.Positional[
        Annotated[tuple[str, ...], default_is("the current folder")]] = field(default=())
    """Runs, codes, or folders that contain them, models that come with the library, or
    hf://user/name. Nothing outside them is read. With --texts a language model: a folder, a name
    on the hub such as gpt2 or EleutherAI/pythia-70m@step1000, or a run on text."""
    texts: Annotated[str | None, default_is("no language model")] = None
    """Texts that a language model is asked about: one per line (.txt), or one object with "text"
    per line (.jsonl)."""
    n: Annotated[int | None, default_is("1,000")] = None
    """Texts that are read at most, the first ones."""
    longest: Annotated[int | None, default_is("128")] = None
    """Tokens of each text; longer ones are cut."""
    port: Annotated[int | None, default_is("the first free one from 8501")] = None
    """Port of the page."""
    no_browser: bool = False
    """Do not open a browser window."""

    def run(self) -> None:
        from latentcode.app.server import serve

        language = self._language()
        with TemporaryDirectory() as copies:
            folders = [] if language is not None else [
                _here(folder, Path(copies)) for folder in self.folders]
            status = serve(folders, port=self.port, browser=not self.no_browser, language=language)
        if status:
            raise SystemExit(status)

    def _language(self) -> Given | None:
        """Return the language model that is asked about texts, looked up; None without texts."""
        if self.texts is None:
            for name, value in (("n", self.n), ("longest", self.longest)):
                check(value is None, f"--{name} is {value}, and no texts are given; expected "
                      "--texts with a file, too")
            return None
        from latentcode.app.language.checking import checked
        from latentcode.app.language.given import LONGEST, TEXTS

        return checked(self.folders, self.texts, n=TEXTS if self.n is None else self.n,
                       longest=LONGEST if self.longest is None else self.longest)


def _here(folder: str, copies: Path) -> Path:
    """Return a folder, that of a model of the zoo, or a copy of what lies at an address on the hub.

    The cache of the hub is made of links, and the explorer follows none out of its folders.
    """
    import shutil

    from latentcode.hub import fetch, is_address, origin
    from latentcode.runs.run import ZOO_PREFIX, folder_of, zoo_folders

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
