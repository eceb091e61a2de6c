"""`latentcode zoo text`: text to train language models on, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from latentcode.cli.options import default_is
from latentcode.errors import check


@dataclass(frozen=True)
class Text:
    """Write a text to train language models on, without a network.

    Example: latentcode zoo text packages text

    `packages` are the installed Python packages: a folder in the layout of the Hugging Face hub,
    tens of megabytes of docstrings, comments, documents and sources, the same for the same
    versions.
    `spans` are 8,000 documents whose few spans of random words come again and again, so that small
    models learn to copy. `latentcode train language --task.text text --out runs/language` trains on
    either.
    """

    what: tyro.conf.Positional[Literal["packages", "spans"]]
    """Which text."""
    out: tyro.conf.Positional[Path]
    """Folder for the text."""
    most_megabytes: Annotated[float | None, default_is("3.0")] = None
    """Of any one package; for `packages` only."""
    overwrite: bool = False
    """Replace a text that was written so before."""

    def run(self) -> None:
        if self.what == "spans":
            self._spans()
        else:
            self._packages()

    def _spans(self) -> None:
        from latentcode.tasks.text.spans import N_DOCUMENTS, write_spans

        check(self.most_megabytes is None, f"--most-megabytes is {self.most_megabytes}; expected "
              "none, as spans are of no package")
        write_spans(self.out, overwrite=self.overwrite)
        print(f"wrote {N_DOCUMENTS:,} documents to {self.out}")

    def _packages(self) -> None:
        from latentcode.tasks.text.packages import MOST_MEGABYTES, write_packages

        about = write_packages(
            self.out, overwrite=self.overwrite, most_megabytes=MOST_MEGABYTES
            if self.most_megabytes is None else self.most_megabytes)
        for package in about:
            print(f"{package.name:18}{package.version:14}{package.documents:6,} documents "
                  f"{package.bytes / 1e6:6.2f} MB  {package.licence}")
        print(f"wrote {sum(p.documents for p in about):,} documents, "
              f"{sum(p.bytes for p in about) / 1e6:.1f} MB, to {self.out}")
