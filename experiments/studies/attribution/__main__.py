"""Which codes do answers hang on? Attribution in models that know their task, and its check.

    python -m latentcode.experiments.studies.attribution --runs runs/sraven_known

Of the runs of a sweep (SRAVEN models that know every rule) those of one seed, and the fuzzy-logic
models of the zoo. Ten minutes of one CPU core. Writes `README.md`, which says what the numbers
say, and a result per model; `--page-only` writes the page of the results again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import tyro

from latentcode.errors import check
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.attribution.page import findings, page
from latentcode.files.storage import (
    check_free,
    read_json,
    replace_file,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.models.config import kind_of
from latentcode.probes.attribution import AttributionResult, attribute
from latentcode.progress import bar
from latentcode.runs.named import load_run

MARKER = "attribution_study.json"
ZOO = ("logic-hyla", "logic-linear", "logic-softmax")
N = {"sraven": 250, "logic": 500}
"""Instances drawn of each task; a third to nine tenths of them count."""


def main(
    runs: Path = Path("runs/sraven_known"),
    out: Path = Path("experiments/results/attribution"),
    seed: int = 0,
    zoo: tuple[str, ...] = ZOO,
    n_patched: int = 100,
    n_checked: int = 40,
    n_ranked: int = 200,
    overwrite: bool = False,
    page_only: bool = False,
) -> None:
    """Attribute the answers of several models, and write a page of what was found.

    Args:
        runs: Folder of the runs of a sweep.
        out: Folder of the page and the results.
        seed: Seed of the runs that are looked at.
        zoo: Models of the zoo that are looked at, too.
        n_patched: Instances that single places and sets are written into.
        n_checked: Places that are written singly, strongest ones and random ones each.
        n_ranked: Of how many places a small set is made.
        overwrite: Replace a result that `out` already holds.
        page_only: Compute nothing: write the page of the results that `out` holds.
    """
    if page_only:
        _write_again(out)
        return
    torch.set_num_threads(1)  # the last bits of sums depend on their number
    check_free(out, overwrite=overwrite, marker=MARKER)
    folders = sorted(path.parent for path in runs.glob("*/config.yaml"))
    found = [run for run in map(load_run, folders) if run.config.training.seed == seed]
    check(bool(found), f"{runs} holds no run of seed {seed}; expected the folder of a sweep")
    results: dict[str, AttributionResult] = {}
    for run in (*found, *map(load_run, zoo)):
        task = run.config.task.name
        name = f"{task}-{kind_of(run.config.model)}"
        print(name, flush=True)
        results[name] = attribute(run, n=N[task], n_patched=n_patched, n_checked=n_checked,
                                  n_ranked=n_ranked, batch_size=125, progress=bar("passes"))
    with replace_folder(out, overwrite=overwrite, marker=MARKER) as temporary:
        for name, result in results.items():
            # The parts of single heads are many, and cheap to compute again.
            replace(result, heads=result.heads.iloc[:0]).save(temporary / name)
        write_text(temporary / "README.md", page(results))
        write_study(temporary, MARKER.removesuffix(".json"), {
            "findings": findings(results),
            "settings": {name: dict(result.settings) for name, result in results.items()}}, {})
    print("\n".join(findings(results)))
    print(f"wrote result {out}")


def _write_again(out: Path) -> None:
    """Write the page, what it says and the figures of the results that are there."""
    study = read_json(out / MARKER)
    results = {name: AttributionResult.load(out / name) for name in study["settings"]}
    for name, result in results.items():
        with replace_file(out / name / "sets.png") as temporary:
            result.figures()["sets.png"].savefig(temporary, dpi=150, format="png")
    write_text(out / "README.md", page(results))
    write_json(out / MARKER, {**study, "findings": findings(results)})
    print(f"wrote {out / 'README.md'}")


if __name__ == "__main__":
    tyro.cli(main)
