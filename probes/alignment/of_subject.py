"""Do models have the same codes, up to a permutation of heads or a rotation?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from latentcode.config import TaskConfig
from latentcode.errors import check
from latentcode.probes.alignment.of_codes import align_codes
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.common.extraction import subjects_of
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import Subject
from latentcode.subjects.of_tasks import RunSubject
from latentcode.tasks import Task, make_task

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems


@watched("aligning")
def align(
    models: Sequence[Model] | Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    step: Sequence[int] | int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AlignmentResult:
    """Compare the codes of models, up to a permutation of heads or a rotation.

    Runs of one training seed begin with the same weights, of different kinds too, and are left out
    of the result's summary and figures, which says so.

    Args:
        models: At least two, see `subject`; or one run with several steps.
        problems: What all models see; see `subject`; default: what the first run's task chooses for
            probing, so that "held out" means held out of the *first* run. The result says how many
            of those combinations the others were trained on.
        labels: What the transferred probes decode; default: those that the task names for probing,
            and of prompts the column label; or functions of a batch, as in `decode`.
        n_train: Problems that probes and matchings are fitted on; default: 2,048, of prompts all.
        n_heldout: Problems that probes and matchings are scored on; default: 2,048, of prompts all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        step: Checkpoints to compare; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: What training and held-out codes may have in common, as in `decode`.
        n_bootstrap: Replicates of the intervals of transferred probes, which resample the held-out
            combinations.
        seed: Seed of the problems and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (comparisons done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `align_codes` raise,
            `ProbeError` for a single model, for no problems and for models of the same name, and
            `ConfigError` for runs whose tasks differ in more than their split.
    """
    seed = checked_seed(seed)
    opened = subjects_of(models, problems, least=2, step=step, device=device)
    runs = [of for of in opened if isinstance(of, RunSubject)]
    for a, b in pairwise(runs):
        ours, theirs = (_family(of.run.config.task) for of in (a, b))
        check(ours == theirs, f"the tasks of {a.name} and {b.name} differ: {ours} and {theirs}; "
              "expected runs of one task, whose splits may differ")
    first = opened[0].probing
    asked = asked_labels(labels, first)
    names = names_of(asked)
    if isinstance(first, RunSubject):
        opened = [of.on(first.task) if isinstance(of, RunSubject) else of for of in opened]
    opened = [of.divided(heldout, seed, next(iter(names), "label")) for of in opened]
    parts = (("train", opened[0].n_of("n_train", n_train, 2_048, "train")),
             ("ood", opened[0].n_of("n_heldout", n_heldout, 2_048, "ood")))
    further = own_labels(asked if labels is not None else None, opened[0], parts, seed=seed)
    codes = [[of.with_untrained(split, values, n=n, pairs=pairs, layers=layers, seed=seed,
                                controls=controls)
              for (split, n), values in zip(parts, further, strict=True)] for of in opened]
    trained, untrained = ([(train[i], scored[i]) for train, scored in codes] for i in range(2))
    return align_codes(
        trained, names,  # type: ignore[arg-type]
        untrained=untrained if controls else None,  # type: ignore[arg-type]
        controls=controls, allow_overlap=allow_overlap, n_bootstrap=n_bootstrap, seed=seed,
        progress=progress, initial_seeds=_initial_seeds(opened),
        heldout_trained_on=_trained_on(
            [of for of in opened if isinstance(of, RunSubject)]))


def _initial_seeds(opened: Sequence[Subject]) -> dict[str, int]:
    """Return the seed of the initial weights of each model of which it is known."""
    known = {of.name: of.run.config.training.seed if isinstance(of, RunSubject)
             else getattr(getattr(of, "of", None), "seed", None) for of in opened}
    return {name: seed for name, seed in known.items() if seed is not None}


def _trained_on(runs: Sequence[RunSubject]) -> dict[str, tuple[int, int]]:
    """Return how many of the held-out combinations each run was trained on, of how many."""
    if not runs:
        return {}
    heldout = _combinations(runs[0].task, "ood")
    return {of.name: (len(_combinations(make_task(of.run.config.task), "train") & heldout),
                      len(heldout)) for of in runs}


def _combinations(task: Task, split: str) -> set[tuple[int, ...]]:
    return {tuple(row) for row in task.combinations(split).tolist()}


def _family(task: TaskConfig) -> TaskConfig:
    """Return a task configuration without its split."""
    changes: dict[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
    return replace(task, **{k: v for k, v in changes.items() if hasattr(task, k)})
