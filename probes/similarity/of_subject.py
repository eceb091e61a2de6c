"""Which labels have similar codes in a model, and how many heads do its codes use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from latentcode.errors import ProbeError, check
from latentcode.probes.common.own_labels import (
    LabelFunction,
    asked_labels,
    names_of,
    own_labels,
)
from latentcode.probes.similarity.of_codes import similarity_codes
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split


@watched("comparing codes")
def similarity(
    model: Model,
    problems: Problems = None,
    label: str | Mapping[str, LabelFunction] | None = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    controls: bool = True,
    n_samples: int = 16,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> SimilarityResult:
    """Compare the mean codes of a label's values, and count the heads that a code uses.

    See `latentcode.probes.similarity.similarity_codes` for the equation; what is above its controls
    is in `SimilarityResult.contrasts`.

    Args:
        model: See `subject`; or codes.
        problems: See `subject`; default: what the run's task chooses for probing.
        label: Default: the last that the task names for probing, `rule` or `terms`; or a function
            of a batch, `{name: function}`, as in `decode`.
        split: Which combinations; the held-out ones, as in the paper's Fig. 5E and A8.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_samples: Problems whose codes are kept one by one.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `similarity_codes` raise.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, device=device).probing
    asked = names_of(asked_labels(None, of))[-1] if label is None else label
    names = names_of(asked)
    check(len(names) == 1, f"label is {', '.join(map(str, names)) or 'empty'}; expected a single "
          "one", ProbeError)
    n = of.n_of("n", n, 4_096, split)
    further, = own_labels(asked, of, [(split, n)], seed=seed)
    codes, untrained = of.with_untrained(split, further, n=n, pairs=pairs, layers=layers, seed=seed,
                                         controls=controls)
    return similarity_codes(
        codes, names[0], untrained=untrained, controls=controls, n_samples=n_samples,
        n_bootstrap=n_bootstrap, seed=seed, progress=progress)
