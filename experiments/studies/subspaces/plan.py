"""Which searches the study makes: 60 of them, and in which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from latentcode.probes.das import das

RANK = 16
"""The rank at which every claim is decided; others are looked at in one model."""
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Job:
    """One call of `das`, whose result goes to a folder of its own.

    task, kind, seed  which model
    settings  arguments of `das`
    """

    task: str
    kind: str
    seed: int
    site: str
    layer: int
    part: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of the folder of its result."""
        where = f"{self.site}{self.layer}{self.part and '-' + self.part}"
        return f"{self.task}-{self.kind}-seed{self.seed}-{where}"

    def run(self, sraven: Path) -> str:
        """Return the run that is searched: of the sweep in a folder, or of the zoo."""
        if self.task == "logic":
            return f"logic-{self.kind}"
        return str(sraven / f"seed={self.seed},split_seed={self.seed},kind={self.kind}")


def jobs() -> Sequence[Job]:
    """Return all jobs, the most wanted first.

    Layers were chosen by what a source's whole activation does to training combinations in seed 0
    (jobs of the part `whole`): of HYLA's rows that of layer 3 does most. No row of a single layer
    of the linear model does anything, so that its residual stream entering layer 3 is searched.
    HYLA's entering layer 3 carries the operands already, that entering layer 2 only in part.
    """
    both = {"objective": ("operation", "operands"), "rank": RANK}
    operation = {"objective": "operation", "rank": RANK}
    found = []
    for seed in SEEDS:
        found += [Job("sraven", "hyla", seed, "code", 3, settings=both),
                  Job("sraven", "hyla", seed, "residual", 2, settings=operation),
                  Job("sraven", "linear", seed, "residual", 3, settings=both)]
    # Fewer pairs of fuzzy logic count.
    found += [Job("logic", kind, 0, "code", 0, settings={**both, "n_train": 4_096, "n": 1_500})
              for kind in ("hyla", "linear")]
    found.append(Job("sraven", "hyla", 0, "code", 3, "ranks", {
        "objective": "operation", "rank": (1, 4, 64), "searches": ("trained",)}))
    found += [Job("sraven", kind, 0, site, layer, "whole", {
        "searches": (), "n_train": 16, "n": 150, "split": "train", "seed": 1})
        for kind in ("hyla", "linear") for site in ("code", "residual") for layer in (1, 2, 3)]
    return found


def search(job: Job, sraven: Path, out: Path) -> None:
    """Make the searches of a job, and save their result."""
    torch.set_num_threads(1)
    result = das(job.run(sraven), site=job.site, layer=job.layer, **job.settings)
    result.save(out / job.folder, figures=False)
