"""From a trained run to what its codes, or other features, say: read them and controls, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from latentcode.arguments import as_tuple
from latentcode.codes.rows import read_rows
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check_count
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.common.features import chosen
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.decoding.fitting import METRICS, SINGLE
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.of_features import decode_features
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.seeds import checked_seed
from latentcode.tasks import as_task, make_task


@watched("fitting probes")
def decode(
    run: Run | str | Path,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str = ("code",),
    widths: Sequence[int] | int | None = None,
    beyond_answer: bool = False,
    metrics: Sequence[str] | str = METRICS,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    n_train: int = 4_096,
    n_heldout: int = 4_096,
    task: TaskConfig | None = None,
    step: int | None = None,
    controls: bool = True,
    seed: int = 0,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Which labels can be read out of the codes of a trained run, on held-out combinations?

    Logistic probes are fitted on features of `train` combinations and scored on `ood` ones, beside
    those of an untrained model, shuffled labels and, of codes, the residual stream (paper, Fig. 2B
    and 5F).

    run      a run, its folder, or a name of the zoo
    labels   default: those that the task names, such as term_1, term_2 and terms, or rule; of
             features beside the code operation, operands and answer (`Task.row_labels`), such as
             rule, operand_1, operand_2 and answer, measurements in bins of equal share. Or
             functions of a batch, `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`
    features  what is decoded from: `code`, `row` (the codes of the pair's query over all keys),
             `codes`, `values`, `residual`, `tokens` and more (`latentcode.codes.rows`). Those of
             more than 512 numbers are read as x R / sqrt(512), R [d, 512] standard normal
    widths   dimensions that all features are brought to, so that wide ones are not favoured: the
             first principal axes of the training instances. Features that vary in fewer are read
             in these alone. Default: all dimensions
    beyond_answer  also ask for the held-out log loss that features gain over the answer, and over
             answer and operands, in nats, of the labels of the operation (`DecodingResult.given`)
    metrics  of labels with a single class: `accuracy`, `macro_f1`, `balanced_accuracy`; groups
             have `f1`
    pairs    default: the paper's pair, the first of the task's
    layers   default: all
    task     what to draw instances from; default: the task's own choice for probing, for fuzzy
             logic one shared context with varying query (paper 3.2)
    step     the checkpoint; default: the newest
    controls  False leaves out the untrained model and the residual stream
    n_train, n_heldout  instances that probes are fitted on and scored on
    n_jobs   processes that fit probes side by side
    progress  called with (probes done, probes in all)

    Raises what `load_run`, `own_labels`, `extract`, `read_rows` and `decode_codes` raise,
    `ProbeError` for no instances or widths.
    """
    seed, run = checked_seed(seed), load_run(run)
    features, metrics = as_tuple(features), chosen("metric", metrics, tuple(SINGLE))
    own = make_task(run.config.task)
    source = as_task(task or own.probe_config)
    for name, number in (("n_train", n_train), ("n_heldout", n_heldout)):
        check_count(name, number, 1, ProbeError)
    parts = ("train", n_train), ("ood", n_heldout)
    if features != ("code",) or widths is not None or beyond_answer or not controls:
        own_values = own_labels(labels if isinstance(labels, Mapping) else None, source, parts,
                                seed=seed, device=device)
        return decode_features(
            partial(read_rows, run, layers=layers, task=source, step=step, seed=seed,
                    device=device),
            source, labels, own_values, parts, features=features,
            widths=None if widths is None else as_tuple(widths), beyond_answer=beyond_answer,
            metrics=metrics, pairs=tuple(source.pairs)[:1] if pairs is None else as_tuple(pairs),
            controls=controls, seed=seed, n_jobs=n_jobs, progress=progress)
    labels = own.probe_labels if labels is None else labels
    further = own_labels(labels, source, parts, seed=seed, device=device)
    train, heldout = (
        extract_with_untrained(run, split, values, n=n, pairs=pairs, layers=layers, task=source,
                               step=step, seed=seed, device=device)
        for (split, n), values in zip(parts, further, strict=True))
    return decode_codes(train[0], heldout[0], names_of(labels), metrics=metrics,
                        untrained=(train[1], heldout[1]), seed=seed, n_jobs=n_jobs,
                        progress=progress)
