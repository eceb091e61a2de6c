"""`latentcode project`: how do codes lie?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from latentcode.cli.options import Question, Split, Verb, default_is
from latentcode.errors import ProbeError, check


@dataclass(frozen=True, kw_only=True)
class Project(Question):
    """How do codes lie?

    Example: latentcode project runs/hyla --labels term_1 --out results/projection

    Draws codes in two dimensions, with quality measures. Each layer and pair has a plane. It is
    fitted to the codes of the first split; those of the others are placed in it. Planes that were
    computed before come from a cache.
    """

    paths: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(
            metavar="FOLDER [FOLDER ...]", help_behavior_hint="(required)")]]
    """A run folder, a model of the zoo such as sraven-hyla, or codes of one or more splits."""
    labels: Annotated[tuple[str, ...], default_is("the run's constituents")] = ()
    """What colours the points. Codes need at least one."""
    method: Literal["tsne", "umap", "pca"] = "tsne"
    """How to project."""
    splits: tuple[Split, ...] = ("ood",)
    """Of a run: the split to fit to, then others to place. Codes have their own."""
    n: int = 2_000
    """Number of instances of each split; of codes, the first so many."""
    perplexity: Annotated[float | None, default_is("30")] = None
    """t-SNE: effective number of neighbours."""
    n_neighbors: Annotated[int | None, default_is("15")] = None
    """UMAP: number of neighbours."""
    metric: Annotated[Literal["euclidean", "cosine"] | None, default_is("euclidean")] = None
    """t-SNE and UMAP: distance between codes."""
    cache: Annotated[Path | None, default_is("LATENTCODE_CACHE, or the user's cache folder")] = None
    """Folder of the cache."""

    def verb(self) -> Verb:
        from latentcode.probes.projection import ProjectionResult, project

        return project, ProjectionResult

    def run(self) -> None:
        from latentcode.runs.named import folder_of, load_run

        check(len(self.paths) > 0, "no folder is given; expected a run, or codes", ProbeError)
        check(self.n >= 1, f"--n is {self.n}; expected at least 1", ProbeError)
        folders = [folder_of(path) for path in self.paths]
        if all((folder / "codes.safetensors").exists() for folder in folders):
            self._project_codes(folders)
        else:
            check(len(folders) == 1, f"{len(folders)} folders are given that are not all codes; "
                  "expected one run, or folders of codes", ProbeError)
            self.ask(load_run(folders[0]))

    def _project_codes(self, folders: Sequence[Path]) -> None:
        import numpy as np

        from latentcode.codes import LatentCodes
        from latentcode.probes.projection import ProjectionResult
        from latentcode.probes.projection.of_codes import project_codes

        check(len(self.labels) > 0, "no --labels are given; expected at least one, since codes do "
              "not say which matter", ProbeError)
        check(self.splits == ("ood",), f"--splits is {self.splits}, but codes have their own split",
              ProbeError)
        codes = [LatentCodes.load(folder) for folder in folders]
        first, *others = (part.subset(np.arange(min(self.n, len(part)))) for part in codes)
        settings = self.arguments(None)
        for of_runs in ("splits", "n", "device"):
            del settings[of_runs]
        self.save_result(ProjectionResult, "project", lambda progress: project_codes(
            first, others=others, progress=progress, **settings))
