"""From a trained run to decoded codes in one call: extract, extract the controls, decode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check_count
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_task


@watched("fitting probes")
def decode(
    run: Run | str | Path,
    labels: Labels | None = None,
    *,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    n_train: int = 4_096,
    n_heldout: int = 4_096,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Which constituents can be read out of the codes of a trained run, on held-out combinations?

    Logistic probes are fitted on codes of `train` combinations and scored on `ood` ones, beside
    an untrained model's codes, shuffled labels and the residual stream (paper, Fig. 2B and 5F).

    run      a run, its folder, or a name of the zoo
    labels   default: those that the task names, such as term_1, term_2 and terms, or rule; or
             functions of a batch, `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`
    pairs    default: the paper's pair, the first of the task's
    layers   default: all
    task     what to draw instances from; default: the task's own choice for probing, for fuzzy
             logic one shared context with varying query (paper 3.2)
    n_train, n_heldout  instances that probes are fitted on and scored on
    n_jobs   processes that fit probes side by side
    progress  called with (probes done, probes in all)

    Raises what `load_run`, `own_labels`, `extract` and `decode_codes` raise, `ProbeError` for no
    instances.
    """
    run = load_run(run)
    own = make_task(run.config.task)
    source = as_task(task or own.probe_config)
    labels = own.probe_labels if labels is None else labels
    for name, number in (("n_train", n_train), ("n_heldout", n_heldout)):
        check_count(name, number, 1, ProbeError)
    parts = ("train", n_train), ("ood", n_heldout)
    further = own_labels(labels, source, parts, seed=seed, device=device)
    train, heldout = (
        extract_with_untrained(run, split, values, n=n, pairs=pairs, layers=layers,
                               task=source, seed=seed, device=device)
        for (split, n), values in zip(parts, further, strict=True))
    return decode_codes(train[0], heldout[0], names_of(labels),
                        untrained=(train[1], heldout[1]), seed=seed, n_jobs=n_jobs,
                        progress=progress)
