"""Build the site: guides, concepts, how-tos, findings, and the API.

    python docs/build.py [FOLDER]

MkDocs makes the pages out of the Markdown files where they lie in the repository (pages.py), pdoc
those of the API out of the docstrings (api.py). What is wrong with a link ends the build.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from api import write_api
from links import links
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from latentcode.errors import LatentCodeError, check
from latentcode.files.storage import replace_folder

HERE = Path(__file__).resolve().parent


def build_site(site: Path, api: Path) -> None:
    """Write the site into a folder, with the pages of the API from another."""
    config = load_config(str(HERE / "mkdocs.yml"), site_dir=str(site), strict=True)
    config.extra["api"] = str(api)
    build(config)
    found = links(site.resolve())
    wrong = [*(f"leads nowhere: {link}" for link in found.broken),
             *(f"comes from a network: {link}" for link in found.loaded)]
    check(not wrong, "\n".join([f"{len(wrong)} links of the site are wrong", *wrong]))
    (site / "external_links.txt").write_text("\n".join(found.outside) + "\n", encoding="utf-8")


def main(folder: Path = HERE / "site") -> None:
    try:
        with (tempfile.TemporaryDirectory() as api,
              replace_folder(folder, overwrite=True, marker="external_links.txt") as site):
            write_api(Path(api))
            build_site(site, Path(api))
    except (LatentCodeError, Abort) as error:
        sys.exit(str(error))
    print(f"open {folder / 'index.html'}; the links that lead elsewhere: external_links.txt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
