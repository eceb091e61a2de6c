"""Which architectures can be trusted?

    python -m latentcode.experiments.studies.bridges

`check_model` of a small model of every architecture that TransformerLens has a bridge for, with
weights drawn from a seed, in float32 and in float64; a few minutes, without a network. Writes
`bridges.json`, and the tables of docs/architectures.md from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import tyro

from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.bridges.checking import check_architecture
from latentcode.experiments.studies.bridges.page import write_page
from latentcode.experiments.studies.bridges.small_models import names
from latentcode.files.provenance import package_version


def main(
    out: Path = Path("experiments/results/bridges"),
    page: Path = Path("docs/architectures.md"),
    only: Sequence[str] = (),
    workers: int = 1,
) -> None:
    """Check every architecture, and write what was found.

    Args:
        out: Folder of the result.
        page: Page whose tables are written.
        only: Architectures, if not all; then nothing is written.
        workers: Number of processes.
    """
    out.mkdir(parents=True, exist_ok=True)
    asked = tuple(only) or names()
    found = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for name, of in zip(asked, pool.map(check_architecture, asked), strict=True):
            found[name] = of
            print(f"{name}: {of['outcome']} {of.get('reason', '')}", flush=True)
    if not only:
        write_study(out, "bridges", {
            "command": "python -m latentcode.experiments.studies.bridges",
            "transformer_lens": package_version("transformer-lens"),
            "transformers": package_version("transformers"), "architectures": found}, {})
        write_page(page, out / "bridges.json")
        print(f"wrote result {out}")


if __name__ == "__main__":
    tyro.cli(main)
