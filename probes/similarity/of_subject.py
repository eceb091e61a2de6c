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
    """Which values of a label have similar codes, and how many heads does a code use?

    model     see `subject`; or codes
    problems  see `subject`; default: what the run's task chooses for probing
    label     default: the last that the task names for probing, `rule` or `terms`; or a function
              of a batch, `{name: function}`, as in `decode`
    split     which combinations; the held-out ones, as in the paper's Fig. 5E and A8
    n         number of problems; default: 4,096, of prompts and codes all
    pairs     names of pairs, or `all`; default: the paper's, the first of the task's
    layers    layer numbers; default: all
    controls  False leaves out the residual stream and the untrained model, and marks the result
    n_samples  problems whose codes are kept one by one
    n_bootstrap  replicates of the 95 % intervals, which resample the combinations
    seed      of the problems and the bootstrap
    device    cpu or cuda; default: cpu
    progress  called with (layers and pairs done, in all)

    See `latentcode.probes.similarity.similarity_codes` for the equation; what is above its controls
    is in `SimilarityResult.contrasts`. Raises what `subject`,
    `own_labels`, `extract` and `similarity_codes` raise.
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
