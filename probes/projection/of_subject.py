"""What do the codes of a model look like in two dimensions?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentcode.arguments import as_tuple
from latentcode.errors import ProbeError, check
from latentcode.probes.common.labels import single_labels
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.projection.methods import settings_of
from latentcode.probes.projection.of_codes import project_codes
from latentcode.probes.projection.result import ProjectionResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject
from latentcode.subjects.of_codes import CodesSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems


@watched("projecting")
def project(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    method: str = "tsne",
    splits: Sequence[str] | str = ("ood",),
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    perplexity: float | None = None,
    n_iter: int | None = None,
    n_neighbors: int | None = None,
    min_dist: float | None = None,
    metric: str | None = None,
    cache: str | Path | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> ProjectionResult:
    """Map codes to two dimensions, and measure whether those of one label lie together.

    Args:
        model: See `subject`; or codes, with those of other splits as the problems.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: What colours the points; default: those single columns that the task names for
            probing, such as rule or term_1; or functions of a batch, as in `decode`.
        method: `tsne`, `umap` or `pca`.
        splits: The one that the planes are fitted to, then others, which are placed in them; codes
            have their own.
        n: Problems of each split; default: 2,000, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        perplexity: Effective number of neighbours of t-SNE; default: 30.
        n_iter: Iterations of t-SNE after the 250 of early exaggeration; default: 500.
        n_neighbors: Number of neighbours of UMAP; default: 15.
        min_dist: Smallest distance between points of UMAP; default: 0.1.
        metric: Distance between codes for t-SNE and UMAP, `euclidean` or `cosine`; default:
            euclidean.
        cache: Folder of the cache; default: LATENTCODE_CACHE, or the user's cache folder.
        seed: Seed of the problems and the projection.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (hundredths done, hundredths in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `project_codes` raise.
    """
    seed, splits = checked_seed(seed), as_tuple(splits)
    check(len(splits) > 0, "splits is empty; expected at least one", ProbeError)
    given: dict[str, Any] = {name: value for name, value in (
        ("perplexity", perplexity), ("n_iter", n_iter), ("n_neighbors", n_neighbors),
        ("min_dist", min_dist), ("metric", metric)) if value is not None}
    settings_of(method, **given)  # a wrong name is told before anything is extracted
    of = subject(model, problems, device=device).probing
    asked = asked_labels(labels, of)
    if isinstance(of, CodesSubject):
        check(splits == ("ood",), f"splits is {splits}, but codes have their own split; expected "
              "none", ProbeError)
        splits = tuple(str(i) for i in range(len(of.parts)))
    parts = [(split, of.n_of("n", n, 2_000, split)) for split in splits]
    further = own_labels(asked if labels is not None else None, of, parts, seed=seed)
    codes = [of.codes(split, n=n, pairs=pairs, layers=layers, seed=seed).with_labels(**values)
             for (split, n), values in zip(parts, further, strict=True)]
    names = names_of(asked) if labels is not None else single_labels(codes[0], names_of(asked))
    return project_codes(codes[0], names, method=method, others=codes[1:], seed=seed, cache=cache,
                         progress=progress, **given)
