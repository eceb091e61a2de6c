"""One call from a trained run to decoded codes: extract, extract the controls, decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import extract
from latentcode.config import TaskConfig
from latentcode.probes.common.results import DecodingResult
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.runs import Run
from latentcode.tasks import make_task


def decode(
    run: Run,
    *,
    labels: Sequence[str] | None = None,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    n_train: int = 4_096,
    n_heldout: int = 4_096,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> DecodingResult:
    """Which constituents can be read out of the codes of a trained run, on held-out combinations?

    Logistic probes are fitted on codes of `train` combinations and scored on `ood` ones, beside
    an untrained model's codes, shuffled labels and the residual stream (paper, Fig. 2B and 5F).

    labels   default: those that the task names, such as term_1, term_2 and terms, or rule
    pairs    default: the paper's pair, the first of the task's
    task     what to draw instances from; default: the task's own choice for probing, for fuzzy
             logic one shared context with varying query (paper 3.2)
    n_train, n_heldout  instances that probes are fitted on and scored on
    progress  called with (probes done, probes in all)

    Raises what `extract` and `decode` raise.
    """
    own = make_task(run.config.task)
    source = own.probe_config if task is None else task
    train, heldout = codes_for_probing(
        run, pairs=pairs, layers=layers, n_train=n_train, n_heldout=n_heldout, task=source,
        seed=seed, device=device)
    untrained = codes_for_probing(
        run, pairs=pairs, layers=layers, n_train=n_train, n_heldout=n_heldout, task=source,
        seed=seed, device=device, untrained=True)
    return decode_codes(train, heldout, own.probe_labels if labels is None else labels,
                  untrained=untrained, seed=seed,
                  n_jobs=n_jobs, progress=progress)


def codes_for_probing(
    run: Run,
    *,
    pairs: Sequence[str] | None,
    layers: Sequence[int] | None,
    n_train: int,
    n_heldout: int,
    task: TaskConfig,
    seed: int = 0,
    device: str = "cpu",
    untrained: bool = False,
) -> tuple[LatentCodes, LatentCodes]:
    """Return codes of (training, held-out) combinations; of a trained model with residuals."""
    train, heldout = (
        extract(run, split, n=n, pairs=pairs, layers=layers, residuals=not untrained,
                untrained=untrained, task=task, seed=seed, device=device)
        for split, n in (("train", n_train), ("ood", n_heldout)))
    return train, heldout
