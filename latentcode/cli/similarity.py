"""`latentcode similarity | topography | align`: which codes are alike, in and across runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from latentcode.cli.opening import RunName, RunNames, open_run
from latentcode.cli.reading import Split, _pairs, _progress


@dataclass(frozen=True)
class Similarity:
    """Compare the mean codes of a label's values, and count the heads that codes use.

    Cosine matrices (Fig. 5E, A8C), mean and sampled codes (A8A, B), participation ratios; beside
    the codes stand the residual stream, an untrained model and shuffled labels.
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """Folder of the result: tables, figures, settings."""
    label: str | None = None
    """Whose values are compared; default: rule, or terms."""
    split: Split = "ood"
    """Which combinations."""
    n: int = 4_096
    """Number of instances."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    seed: int = 0
    """Seed of instances, samples and bootstrap."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.files.storage import check_free
        from latentcode.probes.similarity.of_run import similarity

        run = open_run(self.path)
        pairs = _pairs(run, self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="similarity.json")
        result = similarity(
            run, self.label, split=self.split, n=self.n, pairs=pairs, layers=self.layers or None,
            seed=self.seed, device=self.device, progress=_progress("comparing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True)
class Topography:
    """Correlate distances of codes with distances of tasks: topographic similarity.

    With four runs or more, also its correlation with how well they do on held-out combinations.
    """

    paths: tyro.conf.Positional[RunNames]
    out: Path
    """Folder of the result: tables, figures, settings."""
    labels: tuple[str, ...] = ()
    """What tasks are told apart by; default: rule (or terms), and combination."""
    split: Split = "ood"
    """Which combinations, of each run's own split."""
    n: int = 4_096
    """Number of instances."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    seed: int = 0
    """Seed of instances, permutations and bootstrap."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.errors import ProbeError, check
        from latentcode.files.storage import check_free
        from latentcode.probes.topography.of_runs import topography

        check(len(self.paths) > 0, "no run is given; expected one run folder or more", ProbeError)
        runs = [open_run(path) for path in self.paths]
        pairs = _pairs(runs[0], self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="topography.json")
        result = topography(
            runs, self.labels or None, split=self.split, n=self.n, pairs=pairs,
            layers=self.layers or None, seed=self.seed, device=self.device,
            progress=_progress("comparing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True)
class Align:
    """Compare the codes of runs of one task: CKA, Procrustes, matched heads, transferred probes.

    All runs see the same instances, drawn from the first run's task; their splits may differ.
    """

    paths: tyro.conf.Positional[RunNames]
    out: Path
    """Folder of the result: tables, figures, settings."""
    labels: tuple[str, ...] = ()
    """What the transferred probes decode; default: every constituent."""
    n_train: int = 2_048
    """Instances of training combinations that probes and matchings are fitted on."""
    n_heldout: int = 2_048
    """Instances of held-out combinations that they are scored on."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    seed: int = 0
    """Seed of instances, random matchings and bootstrap."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.errors import ProbeError, check
        from latentcode.files.storage import check_free
        from latentcode.probes.alignment.of_runs import align

        check(len(self.paths) >= 2, f"{len(self.paths)} run is given; expected two or more to "
              "align", ProbeError)
        runs = [open_run(path) for path in self.paths]
        pairs = _pairs(runs[0], self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="alignment.json")
        result = align(
            runs, self.labels or None, n_train=self.n_train, n_heldout=self.n_heldout, pairs=pairs,
            layers=self.layers or None, seed=self.seed, device=self.device,
            progress=_progress("aligning"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


__all__ = ["Align", "Similarity", "Topography"]
