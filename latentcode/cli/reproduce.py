"""`latentcode reproduce`: the figures and tables of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import tyro

from latentcode.cli.parsing import default_is
from latentcode.errors import LatentCodeError, check

REPOSITORY = "https://github.com/latentcode/latentcode"


@dataclass(frozen=True)
class Reproduce:
    """Do the figures and tables of the paper hold? Train, measure, judge, draw them.

    Example: latentcode reproduce fig2c tabA1 --preset small

    Names: fig2b fig2c figA3 fig2d figA2 fig4 figA4 fig5ab figA6 figA7 fig5c fig5d fig5e figA8 fig5f
    figA5 figA1 tabA1 nonlinearity tabA2 figA9 tabA3 fig6, or all. Runs that are there
    already are used, and what they lack is trained; at preset paper that can take days. If
    interrupted, the same command continues where it stopped. It needs a checkout of the repository.

    `latentcode reproduce --report` puts on one page what the paper claims and what was found:
    README.md, and a row per claim in verdicts.csv.
    """

    names: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(
        help_behavior_hint="(required, but for --report)")]] = field(default=())
    """Figures and tables, or all."""
    preset: Literal["paper", "small", "smoke"] = "small"
    """paper: the published setting, with verdicts; small: scaled down, minutes each; smoke: a
    minute each, for tests."""
    out: Path = Path("results/paper")
    """Folder for the results, a folder each below that of the preset."""
    work: Path = Path("runs/paper")
    """Folder for the runs that are trained, and for what is measured of single runs."""
    runs: tuple[Path, ...] = ()
    """Further folders of runs that count, such as that of a sweep; never written to."""
    device: str = "cpu"
    """cpu or cuda."""
    no_train: bool = False
    """Work with the runs that are there, and train none."""
    missing: bool = False
    """Leave alone what is there already, of the same runs."""

    report: bool = False
    """Write the page about all that --out holds, alone or after what the names say."""
    pages: Annotated[Path | None, default_is("where the results are")] = None
    """Folder for the page."""

    def run(self) -> None:
        if find_spec("latentcode.experiments") is None:
            raise LatentCodeError(
                "latentcode reproduce needs the folder experiments/, which an installed wheel does "
                f"not have; expected a checkout: git clone --depth 1 {REPOSITORY} && cd latentcode "
                "&& make env && .venv/bin/latentcode reproduce ...")
        check(self.report or self.pages is None, f"--pages is {self.pages}, and --report, which "
              "writes there, is missing; expected both, or none")
        if self.report:
            from latentcode.experiments.paper.report import README
            from latentcode.files.storage import check_writable

            check_writable((self.pages or self.out) / README)
        if self.names or not self.report:
            self._reproduce()
        if self.report:
            from latentcode.experiments.paper.report import write_pages

            for path in write_pages(self.out, self.pages or self.out):
                print(f"wrote {path}")

    def _reproduce(self) -> None:
        from latentcode.experiments.paper.reproduce import Request, names_of, reproduce

        names = names_of(self.names)
        request = Request(self.preset, self.out, self.work, self.runs, self.device,
                          not self.no_train, self.missing)
        done = reproduce(names, request, lambda text: print(text, flush=True))
        print(f"{len(done)} of {len(names)} complete; wrote the results to "
              f"{self.out / self.preset}")
