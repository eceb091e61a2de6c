"""`knn_purity`: what do the codes of a model separate?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.knn_purity.of_codes import knn_purity_codes
from latentcode.probes.knn_purity.purity import K
from latentcode.probes.knn_purity.result import KNNPurityResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split


@watched("comparing neighbours")
def knn_purity(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    k: int = K,
    controls: bool = True,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> KNNPurityResult:
    """Measure which label the nearest neighbours among codes share.

    See `latentcode.probes.knn_purity.knn_purity_codes` for the equation.

    Args:
        model: See `subject`; or codes.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: Names; default: all that neighbours can agree on, also the operands and the model's
            loss. Measurements are cut at their median. Or functions of a batch, `{name: function}`,
            as in `decode`.
        split: Which combinations the problems have: `train`, `test`, `ood` or `unknown`.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        k: Number of neighbours.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, of shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `knn_purity_codes` raise.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, device=device).probing
    n = of.n_of("n", n, 4_096, split)
    further, = own_labels(labels, of, [(split, n)], seed=seed)
    codes, untrained = of.with_untrained(split, further, n=n, pairs=pairs, layers=layers, seed=seed,
                                         controls=controls)
    return knn_purity_codes(
        codes, None if labels is None else names_of(labels), untrained=untrained,
        controls=controls, k=k, n_bootstrap=n_bootstrap, seed=seed, progress=progress)
