"""`latentcode text packages`: text to train language models on, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Text:
    """Write the text of the installed Python packages, to train on.

    Example: latentcode text packages text

    The result is a folder in the layout of the Hugging Face hub, tens of megabytes of docstrings,
    comments, documents and sources, the same for the same versions of the packages:

        latentcode train language --task.text text --out runs/language
    """

    what: tyro.conf.Positional[Literal["packages"]]
    """Whose text."""
    out: tyro.conf.Positional[Path]
    """Folder for the text."""
    most_megabytes: float = 3.0
    """Of any one package."""
    overwrite: bool = False
    """Replace a text that was written so before."""

    def run(self) -> None:
        from latentcode.tasks.text.packages import write_packages

        about = write_packages(self.out, most_megabytes=self.most_megabytes,
                               overwrite=self.overwrite)
        for package in about:
            print(f"{package.name:18}{package.version:14}{package.documents:6,} documents "
                  f"{package.bytes / 1e6:6.2f} MB  {package.licence}")
        print(f"wrote {sum(p.documents for p in about):,} documents, "
              f"{sum(p.bytes for p in about) / 1e6:.1f} MB, to {self.out}")
