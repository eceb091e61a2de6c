"""`latentcode project | value-networks`: how codes lie, and what they generate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from latentcode.cli.opening import RunName, open_run
from latentcode.cli.reading import Split, _pairs, _progress
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes


@dataclass(frozen=True)
class Project:
    """Draw codes in two dimensions, a plane per layer and pair, and say how far to trust them.

    The planes are fitted to the first codes; those of other splits are placed in them. Planes
    that were computed before are looked up in a cache.
    Example: latentcode project runs/hyla --label rule --out figures/rule
    """

    paths: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="FOLDER [FOLDER ...]")]]
    """A run folder, a model of the zoo such as sraven-hyla, or codes of different splits."""
    out: Path
    """Folder of the result: figure.png, coordinates.parquet, qualities, settings."""
    label: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """What colours the points; may be given several times. Default: the run's constituents."""
    method: Literal["tsne", "umap", "pca"] = "tsne"
    """Way to project."""
    splits: tuple[Split, ...] = ("ood",)
    """Of a run: the split to fit to, then others to place. (Codes know their own.)"""
    n: int = 2_000
    """Instances of each split; of codes, the first so many."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's, or all that the codes have."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    perplexity: float | None = None
    """t-SNE: effective number of neighbours; default: 30."""
    n_neighbors: int | None = None
    """UMAP: number of neighbours; default: 15."""
    metric: Literal["euclidean", "cosine"] | None = None
    """t-SNE and UMAP: distance of codes; default: euclidean."""
    seed: int = 0
    """Seed of instances and projection."""
    cache: Path | None = None
    """Folder of the cache; default: LATENTCODE_CACHE, or the user's cache folder."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.files.storage import check_free
        from latentcode.probes.projection import ProjectionResult, project_codes
        from latentcode.probes.projection.methods import settings_of

        check_free(self.out, overwrite=self.overwrite, marker=ProjectionResult.marker())
        settings = {name: value for name, value in (
            ("perplexity", self.perplexity), ("n_neighbors", self.n_neighbors),
            ("metric", self.metric)) if value is not None}
        settings_of(self.method, **settings)
        codes, labels = self._codes()
        result = project_codes(
            codes[0], labels, method=self.method, others=codes[1:], layers=self.layers or None,
            pairs=None if self.pairs == ("all",) else self.pairs or None, seed=self.seed,
            cache=self.cache, progress=_progress("projecting"), **settings)
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")

    def _codes(self) -> tuple[list[LatentCodes], tuple[str, ...]]:
        """Return the codes to project, the fitted ones first, and the labels."""
        import numpy as np

        from latentcode.codes import LatentCodes
        from latentcode.codes.of_tasks import extract
        from latentcode.probes.common.labels import label_columns
        from latentcode.runs.named import folder_of
        from latentcode.tasks import make_task

        if not self.paths:
            raise LatentCodeError("no folder is given; expected a run, or codes")
        if self.n < 1:
            raise LatentCodeError(f"--n is {self.n}; expected at least 1")
        folders = [folder_of(path) for path in self.paths]
        if all((folder / "codes.safetensors").exists() for folder in folders):
            if not self.label:
                raise LatentCodeError("no --label is given, and codes do not say which matter")
            if self.splits != ("ood",):
                raise LatentCodeError(f"--splits is {self.splits}, but codes have their own split")
            parts = [LatentCodes.load(folder) for folder in folders]
            return [part.subset(np.arange(min(self.n, len(part)))) for part in parts], self.label
        if len(self.paths) > 1:
            raise LatentCodeError(f"{len(self.paths)} folders are given that are not all codes; "
                                  "expected one run, or folders of codes")
        run = open_run(self.paths[0])
        task = make_task(run.config.task)
        pairs = _pairs(run, self.pairs)
        parts = [extract(run, split, n=self.n, pairs=pairs, layers=self.layers or None,
                         task=task.probe_config, seed=self.seed, device=self.device)
                 for split in self.splits]
        first = parts[0].pairs[0].name
        return parts, self.label or tuple(
            name for name in task.probe_labels if not label_columns(parts[0], name, first)[1])


@dataclass(frozen=True)
class ValueNetworks:
    """What operations do codes generate? The value networks of each label's mean code.

    Singular values, ranks, cosines between the operations, active units and responses to real
    inputs, beside those of the untrained model and of shuffled labels.
    Example: latentcode value-networks runs/hyla --label rule --out results/networks
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """Folder of the result: tables, figures, settings."""
    label: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Label; may be given several times. Default: the run's constituents, such as rule."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    split: Split = "ood"
    """Instances that the mean codes and inputs are taken from."""
    n: int = 2_048
    """Number of instances."""
    n_inputs: int = 256
    """Number of them whose residual streams at the key are the inputs."""
    seed: int = 0
    """Seed of instances and shuffling."""
    device: str = "cpu"
    """cpu or cuda."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.files.storage import check_free
        from latentcode.probes.value_networks.of_run import value_networks
        from latentcode.probes.value_networks.result import ValueNetworksResult

        run = open_run(self.path)
        check_free(self.out, overwrite=self.overwrite, marker=ValueNetworksResult.marker())
        result = value_networks(
            run, labels=self.label or None, pairs=_pairs(run, self.pairs),
            layers=self.layers or None, split=self.split, n=self.n, n_inputs=self.n_inputs,
            seed=self.seed, device=self.device, progress=_progress("value networks"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


__all__ = ["Project", "ValueNetworks"]
