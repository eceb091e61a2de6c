"""`latentcode zoo text`: text to train language models on, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Text:
    """Write a text to train language models on, without a network.

    Example: latentcode zoo text spans text

    `spans` are 8,000 documents whose few spans of random words come again and again, so that small
    models learn to copy. `packages` is the text of the grid `fig6_small`: tens of megabytes of
    docstrings, documents and sources of the installed Python packages, the same for the same
    versions. `latentcode train language --task.text text --out runs/language` trains on either.
    """

    what: tyro.conf.Positional[Literal["packages", "spans"]]
    """Which text."""
    out: tyro.conf.Positional[Path]
    """Folder for the text."""
    overwrite: bool = False
    """Replace a text that was written so before."""

    def run(self) -> None:
        from latentcode.sweep import texts

        if self.what == "spans":
            texts.write_spans(self.out, overwrite=self.overwrite)
            print(f"wrote {texts.N_DOCUMENTS:,} documents to {self.out}")
        else:
            packages = texts.write_packages(self.out, overwrite=self.overwrite)
            n, size = (sum(package[key] for package in packages) for key in ("documents", "bytes"))
            print(f"wrote {n:,} documents of {len(packages)} packages, {size / 1e6:.1f} MB, to "
                  f"{self.out}; their versions are in about.json")
