"""Is a model of the zoo what its card says?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from latentcode.errors import LatentCodeError, check_count
from latentcode.hub.address import origin
from latentcode.metrics import Metric, is_by_constituent
from latentcode.models.config import kind_of
from latentcode.progress import Progress, watched
from latentcode.runs import Run, named
from latentcode.runs.folder import CARD
from latentcode.runs.named import folder_of
from latentcode.zoo.card import README, Card

NOTHING = Metric(float("nan"), float("nan"), 0)
"""The metric of a constituent that does not occur."""
STANDARD_ERRORS = 4.0
"""Standard errors by which `verify` lets metrics on other instances differ."""


@dataclass
class Verification:
    """Is a model what its card says?

    metrics   one row per split and metric: `mean` now, `card`, `difference`, how much is `allowed`
    problems  what differs, one line each; none for a model that is as its card says
    """

    name: str
    n: int = 0
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note an error that a user can act on, and continue with what else can be verified."""
        try:
            yield
        except LatentCodeError as error:
            self.note(str(error))

    def note(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def __str__(self) -> str:
        if self.problems:
            return "\n".join(f"{self.name}: {problem}" for problem in self.problems)
        return (f"{self.name}: as its card says; {self.n:,} instances of each split, largest "
                f"difference {self.metrics['difference'].abs().max():.1g}")


@watched("evaluating")
def verify(
    name_or_path: str | Path, *, n: int | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Is a model of the zoo what its card says?

    Page and kind are as it says, and the model is evaluated again on every split of its task.

    n         instances of each split; default: the card's. They are the same instances then, and
              metrics may differ by the tolerance of the card; with another n they may differ by
              four standard errors more, and those of single constituents are not compared
    progress  told of instances done, of all

    Raises what `folder_of` raises; what is wrong with the entry is a problem of the result.
    """
    folder = folder_of(name_or_path)
    if n is not None:
        check_count("n", n)
    found = Verification(str(origin(folder) or folder.name))
    with found.noting():
        card = Card.read(folder)
        found.n = card.evaluation.n if n is None else n
        with found.noting():
            _check_facts(Run.open(folder), card, found)
        with found.noting():
            _evaluate(Run.open(folder), card, found, progress)
    return found


def _check_facts(run: Run, card: Card, found: Verification) -> None:
    if run.path.parent == named.ZOO and card.name != run.name:
        found.note(f"the card is that of {card.name!r}; expected {run.name!r}")
    kind = kind_of(run.config.model)
    if card.kind != kind:
        found.note(f"the attention is of kind {kind}; the card says {card.kind}")
    for (split, name), known in card.measured():
        if known.n != card.evaluation.n and not is_by_constituent(name):
            found.note(f"{name} on {split} was measured on {known.n:,} instances; the card says "
                       f"{card.evaluation.n:,}")
    page = run.path / README
    if page.is_file() and page.read_text(encoding="utf-8", errors="replace") != card.to_markdown():
        found.note(f"{page} says other than {CARD}")


def _evaluate(
    run: Run, card: Card, found: Verification, progress: Progress | None
) -> None:
    from latentcode.tasks import make_task
    from latentcode.training.evaluation import evaluate

    model, task = run.load_model(), make_task(run.config.task)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count != card.parameters:
        found.note(f"the model has {count:,} parameters; the card says {card.parameters:,}")
    if set(task.splits) != set(card.metrics):
        found.note(f"the card has metrics on {', '.join(card.metrics) or 'no split'}; the task "
                   f"offers {', '.join(task.splits)}")
    splits = [split for split in task.splits if split in card.metrics]
    tells_apart = any(is_by_constituent(name) for (_, name), _ in card.measured())
    rows = []
    for index, split in enumerate(splits):
        def report(done: int, _: int, begun: int = index * found.n) -> None:
            if progress is not None:
                progress(begun + done, len(splits) * found.n)

        now = evaluate(model, task, split, found.n, seed=card.evaluation.seed,
                       precision=card.evaluation.precision, progress=report)
        on_card = card.metrics[split]
        measured, known = ([name for name in metrics if not is_by_constituent(name)]
                           for metrics in (now, on_card))
        if set(measured) != set(known):
            found.note(f"the card has {', '.join(known)} on {split}; the task measures "
                       f"{', '.join(measured)}")
        names = [name for name in known if name in measured]
        # Too few of other instances have a rare constituent for a standard error to say much.
        if tells_apart and found.n == card.evaluation.n:
            names += [name for name in {**now, **on_card} if is_by_constituent(name)]
        rows += [_compared(split, name, now.get(name, NOTHING), on_card.get(name, NOTHING), card,
                           found) for name in names]
    found.metrics = pd.DataFrame(rows)


def _compared(
    split: str, name: str, now: Metric, known: Metric, card: Card, found: Verification
) -> Mapping[str, object]:
    # A flipped answer moves the mean of fewer answers by more.
    allowed = card.evaluation.tolerance * max(1.0, card.evaluation.n / max(known.n, 1))
    counted = now.n > 0 and known.n > 0  # otherwise neither is a number to compare
    if is_by_constituent(name) and abs(now.n - known.n) > card.evaluation.tolerance * found.n:
        found.note(f"{name} on {split} is measured on {now.n:,}; the card says {known.n:,}")
    if found.n != card.evaluation.n:
        # The instances differ; the card's standard error is the better known of the two.
        allowed += STANDARD_ERRORS * known.se * float(np.sqrt(1.0 + card.evaluation.n / found.n))
    elif counted and not np.isclose(now.se, known.se, rtol=0.0, atol=allowed, equal_nan=True):
        found.note(f"the standard error of {name} on {split} is {now.se:.3g}; the card says "
                   f"{known.se:.3g}")
    difference = now.mean - known.mean
    if counted and not abs(difference) <= allowed:
        found.note(f"{name} on {split} is {now.mean:.6g}; the card says {known.mean:.6g} "
                   f"(allowed difference {allowed:.2g})")
    return {"split": split, "metric": name, "mean": now.mean, "card": known.mean,
            "difference": difference, "allowed": allowed}


__all__ = ["Verification", "verify"]
