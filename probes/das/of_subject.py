"""`das`, distributed alignment search: in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentcode.probes.das.of_model import SEARCHES, das_model
from latentcode.probes.das.result import DASResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split


@watched("searches")
def das(
    model: Model,
    problems: Problems = None,
    objective: str | Sequence[str] = "operation",
    *,
    site: str = "code",
    layer: int | None = None,
    rank: int | Sequence[int] = 4,
    searches: Sequence[str] = SEARCHES,
    split: Split = "ood",
    n_train: int | None = None,
    n: int | None = None,
    heldout: float = 0.3,
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    step: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> DASResult:
    """Find a subspace whose interchange brings the source's operation alone.

    See `latentcode.probes.das.das_model` for the equation.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts a factorial, with the columns `operation` and
            `operands`; default: the run's own task.
        objective: `operation`, towards B(x), `operands`, towards A(x'), or both; of a source with
            another operation B and other operands x'.
        site: `code`, the row of the response in a layer, `z`, what the heads put out for it before
            W_O, or `residual`, the stream of the response's token that enters the layer.
        layer: The layer that is written; default: the last.
        rank: Dimensions of the subspace, or several numbers of them.
        searches: Some of `trained`, and of the controls `shuffled` and `untrained` (see
            `DASResult`).
        split: Combinations whose pairs the subspaces are scored on; they are trained on pairs of
            `train`.
        n_train: Pairs drawn for training; default: 2,048, of prompts all, each of which is a base
            at most once.
        n: Pairs drawn for scoring; default: 600, of prompts all, each of which is a base at most
            once.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        steps: Updates by Adam; a search ends early where its loss is flat.
        batch_size: Pairs of one update.
        learning_rate: Learning rate of Adam.
        step: The checkpoint of a run; default: the newest.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (searches done, in all).

    Raises:
        LatentCodeError: What `subject` and `das_model` raise, and `ConfigError` for problems
            without minimal pairs.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device).divided(heldout, seed, "operation")
    untrained = of.model(untrained=True, seed=seed) if "untrained" in searches else None
    return das_model(
        of.model(), of.counterfactuals(), objective, site=site, layer=layer, rank=rank,
        searches=searches, untrained=untrained, split=of.split_name(split),
        n_train=of.n_of("n_train", n_train, 2_048, "train"), n=of.n_of("n", n, 600, split),
        steps=steps, batch_size=batch_size, learning_rate=learning_rate, seed=seed,
        n_bootstrap=n_bootstrap, meta=of.settings, progress=progress)
