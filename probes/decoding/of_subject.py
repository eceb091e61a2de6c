"""From a model to what its codes, or other features, say: read them and controls, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from latentcode.arguments import as_tuple, chosen
from latentcode.errors import ProbeError, check
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.decoding.fitting import METRICS, SINGLE
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.of_features import decode_features
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems


@watched("fitting probes")
def decode(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str = ("code",),
    widths: Sequence[int] | int | None = None,
    beyond_answer: bool = False,
    metrics: Sequence[str] | str = METRICS,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    step: int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_shuffles: int = 3,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Decode labels from the codes of a model, on held-out combinations.

    Logistic probes are fitted on features of `train` combinations and scored on `ood` ones, beside
    those of an untrained model, shuffled labels and, of codes, the residual stream (paper, Fig. 2B
    and 5F). Labels that are columns of texts are asked of whole texts, on held-out documents
    (`latentcode.prompts.whole_texts`), beside the bag of their tokens, too.

    By how much features are above each control, over the same problems, is in
    `DecodingResult.contrasts`. See `decode_codes` for the equation.

    Args:
        model: See `subject`; or codes of training combinations, and those of held-out ones as the
            problems.
        problems: See `subject`; default: what the run's task chooses for probing, for fuzzy logic
            one shared context with varying query (paper 3.2).
        labels: What is decoded; default: what the task names, such as term_1, term_2 and terms, or
            rule, of prompts the column label, and of features beside the code operation, operands
            and answer (`Task.row_labels`), measurements in bins of equal share. Or functions of a
            batch, `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`.
        features: What is decoded from: `code`, `row` (the codes of the pair's query over all keys),
            `codes`, `values`, `residual`, `tokens`, numbers of whole patterns such as `entropy` and
            `lap_eigvals` (`latentcode.codes.aggregates`) and more (`latentcode.codes.rows`). Those
            of more than 512 numbers are read as x R / sqrt(512), R [d, 512] standard normal.
        widths: Dimensions that all features are brought to, so that wide ones are not favoured: the
            first principal axes of the training problems. Features that vary in fewer are read in
            these alone. Default: all dimensions.
        beyond_answer: Also ask for the held-out log loss that features gain over the answer, and
            over answer and operands, in nats, of the labels of the operation
            (`DecodingResult.given`).
        metrics: Scores of labels with a single class: `accuracy`, `macro_f1`, `balanced_accuracy`;
            groups have `f1`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        n_train: Problems that probes are fitted on; default: 4,096, of prompts and codes all.
        n_heldout: Problems that probes are scored on; default: 4,096, of prompts and codes all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        step: The checkpoint of a run; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: Of codes: what training and held-out ones may have in common, `nothing`,
            `combinations` or `instances`; the result says so.
        n_shuffles: Shuffles of the training labels.
        n_bootstrap: Replicates of the 95 % intervals, which resample the held-out combinations.
        seed: Seed of the problems, shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        n_jobs: Processes that fit probes side by side.
        progress: Called with (probes done, probes in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `decode_codes` raise,
            `ProbeError` for no problems or widths.
    """
    seed, features = checked_seed(seed), as_tuple(features)
    metrics = chosen("metric", metrics, tuple(SINGLE))
    of = subject(model, problems, step=step, device=device).probing
    asked = asked_labels(labels, of)
    if labels is not None:
        of = of.about(names_of(asked))
    of = of.divided(heldout, seed, next(iter(names_of(asked)), "label"))
    parts = (("train", of.n_of("n_train", n_train, 4_096, "train")),
             ("ood", of.n_of("n_heldout", n_heldout, 4_096, "ood")))
    if features != ("code",) or widths is not None or beyond_answer or of.whole_texts:
        check(allow_overlap == "nothing", f"allow_overlap is {allow_overlap!r}, but features are "
              f"{', '.join(features)}; expected it of codes alone", ProbeError)
        own = own_labels(labels if isinstance(labels, Mapping) else None, of, parts, seed=seed)
        return decode_features(
            of, labels, own, parts, features=features,
            widths=None if widths is None else as_tuple(widths), beyond_answer=beyond_answer,
            metrics=metrics, pairs=pairs, layers=layers, controls=controls, n_shuffles=n_shuffles,
            n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)
    further = own_labels(asked if labels is not None else None, of, parts, seed=seed)
    train, scored = (
        of.with_untrained(split, values, n=n, pairs=pairs, layers=layers, seed=seed,
                          controls=controls)
        for (split, n), values in zip(parts, further, strict=True))
    return decode_codes(
        train[0], scored[0], names_of(asked), metrics=metrics,
        untrained=None if train[1] is None or scored[1] is None else (train[1], scored[1]),
        controls=controls, allow_overlap=allow_overlap, n_shuffles=n_shuffles,
        n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)
