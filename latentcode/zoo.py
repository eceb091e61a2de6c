"""The trained models that come with the library, and their cards.

An entry of the zoo is a published run (`Run.publish`) with `card.json` and `README.md`. Its codes
are read out of it when they are first asked for, and kept in the user's cache. Listing needs no
torch, and nothing here needs a network.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.config import Precision, from_dict
from latentcode.errors import ArtifactError, ConfigError, RunError, check, check_choice
from latentcode.figures.text import markdown_table
from latentcode.files.provenance import check_format, header, software
from latentcode.files.storage import check_writable, default_cache, read_json, write_json
from latentcode.metrics import Metric, is_by_constituent
from latentcode.progress import Progress, watched
from latentcode.runs.run import CARD, RESULTS, Run, load_run, zoo_folders

if TYPE_CHECKING:
    import torch

    from latentcode.models.transformer import HookedTransformer

FORMAT = "latentcode.card"
README = "README.md"
MOST_TOLERANCE = 0.01
"""A card that allows more says too little to be verified."""
SPLIT_TITLES: Mapping[str, str] = {
    "train": "training combinations", "test": "training combinations, instances never trained on",
    "ood": "held-out combinations of known constituents",
    "unknown": "combinations of constituents never trained on"}
DOCUMENT_TITLES: Mapping[str, str] = {
    "train": "documents trained on", "test": "held-out documents", "ood": "held-out documents, or "
    "sources where any are held out"}
"""The same of a model of text, whose headline is its perplexity."""

CONSTITUENT_METRICS: Mapping[str, str] = {
    "feature_accuracy": "share of the response tokens under this rule that are right",
    "wrong_as_difference": "share of the wrong answers under this rule that the rule difference "
                           "would give",
    "wrong_as_sum": "share of the wrong answers under this rule that the rule sum would give",
    "r2": "mean over the instances whose function has this term"}


@dataclass(frozen=True)
class Evaluation:
    """How the metrics of a card were measured.

    n          fresh instances of each split
    seed       which they are
    precision  of the matrix products, as `TrainingConfig.precision`
    tolerance  how far a metric may be from the card's on another machine, the instances being
               the same: that of an accuracy if a few answers between which the model wavers flip.
               A metric of one constituent, of fewer answers, may move by as much more
    """

    n: int
    seed: int
    precision: Precision
    tolerance: float

    def __post_init__(self) -> None:
        check(self.n >= 1, f"n is {self.n}; expected a number of instances", ArtifactError)
        check(0.0 <= self.tolerance <= MOST_TOLERANCE, f"tolerance is {self.tolerance}; expected a "
              f"number from 0 to {MOST_TOLERANCE:g}", ArtifactError)


@dataclass(frozen=True)
class CodesOfCard:
    """The codes that `load_codes` reads out of a model, as `extract` is asked for them.

    split  the one that is read by default
    """

    split: str
    n: int
    seed: int
    pairs: tuple[str, ...]

    def __post_init__(self) -> None:
        check(len(self.pairs) > 0, "the card names no pairs of its codes; expected at least one",
              ArtifactError)
        check(self.n >= 1, f"n is {self.n}; expected a number of instances", ArtifactError)


@dataclass(frozen=True)
class Card:
    """What a published model is, how it was made, and how good it is.

    summary     one sentence
    notes       what a user must know, one sentence each
    task, model one line each
    kind        the attention kind
    headline    the metric that is quoted first
    training    what was asked of training, and where it ran
    commands    `train` and `build`: what makes the entry again
    metrics     split -> metric -> mean, standard error, n
    """

    name: str
    summary: str
    notes: tuple[str, ...]
    task: str
    model: str
    kind: str
    headline: str
    parameters: int
    training: Mapping[str, Any]
    commands: Mapping[str, str]
    evaluation: Evaluation
    metrics: Mapping[str, Mapping[str, Metric]]
    codes: CodesOfCard

    @classmethod
    def read(cls, folder: Path) -> Card:
        """Read the card of an entry; `ArtifactError` names what is missing or damaged."""
        path = folder / CARD
        data = check_format(read_json(path), FORMAT, path)
        try:
            card = from_dict(cls, {key: value for key, value in data.items()
                                   if key not in header(FORMAT)}, what="card")
        except (ConfigError, ArtifactError) as error:
            raise ArtifactError(f"{path}: {error}") from None
        for split, metrics in card.metrics.items():
            check(card.headline in metrics, f"{path} quotes {card.headline!r} first; expected one "
                  f"of the metrics on {split}: {', '.join(metrics)}", ArtifactError)
        return card

    def write(self, folder: Path) -> None:
        """Write `card.json`."""
        write_json(folder / CARD, {**header(FORMAT), **asdict(self)})

    def to_markdown(self) -> str:
        """Return the card as people read it; the files it does without."""
        def cells(values: Iterable[Metric | None], digits: int) -> list[str]:
            return ["" if m is None else f"{m.mean:.{digits}f} ± {m.se:.{digits}f}" for m in values]

        def bullets(facts: Mapping[str, object]) -> str:
            return "\n".join(f"- {name}: {value:,}" if type(value) is int else f"- {name}: {value}"
                             for name, value in facts.items())

        metrics, evaluation = self.metrics, self.evaluation
        names = dict.fromkeys(
            [self.headline, *(name for measured in metrics.values() for name in measured)])
        single = [name for name in names if is_by_constituent(name)]
        whole = [name for name in names if name not in single]
        titles = DOCUMENT_TITLES if self.headline == "perplexity" else SPLIT_TITLES
        parts = [
            f"# {self.name}", self.summary,
            "## The model", bullets({
                "Task": self.task, "Model": self.model, "Parameters": self.parameters}),
            "## Limits", "\n".join(f"- {note}" for note in self.notes),
            "## Use", f"```python\nimport latentcode as lc\n\n"
            f'model = lc.load_model("{self.name}")   # with TransformerLens\' hooks\n'
            f'codes = lc.load_codes("{self.name}")   # {self.codes.n:,} instances, '
            f'split {self.codes.split}\nrun = lc.load_run("{self.name}")       # for lc.extract, '
            "lc.decode, lc.intervene\n```",
            "## How good it is", f"Means and standard errors over {evaluation.n:,} fresh instances "
            f"of each split (seed {evaluation.seed}, {evaluation.precision}).",
            markdown_table(["split", *whole], (
                [f"`{split}`: {titles.get(split, '')}", *cells(map(measured.get, whole), 4)]
                for split, measured in metrics.items()))]
        if single:
            meanings = [f"`{kind}[...]`: {meaning}."
                        for kind, meaning in CONSTITUENT_METRICS.items()
                        if any(name.startswith(f"{kind}[") for name in single)]
            parts += ["By constituent. " + " ".join(meanings), markdown_table(
                ["", *(f"`{split}`" for split in metrics)], (
                    [f"`{name}`", *cells((split.get(name) for split in metrics.values()), 3)]
                    for name in single))]
        parts += [
            f"On another machine they may differ by {evaluation.tolerance:g}.",
            "## Training", bullets(self.training),
            "Made again with\n\n```\n" + "\n".join(self.commands.values()) + "\n```",
            "Training cannot go on from this copy: the state of the optimiser and of the random "
            "generators is not in it."]
        return "\n\n".join(parts) + "\n"


def constituent_metrics(run: Run) -> pd.DataFrame:
    """How good is a run at each rule or term? One row per metric, one column per split.

    These are `run.latest(by_constituent=True)`, or where the run was trained before they were
    measured, those of the card beside it.
    """
    measured = run.latest(by_constituent=True)
    if not measured.empty or not (run.path / CARD).is_file():
        return measured
    return pd.DataFrame({
        split: {name: metric.mean for name, metric in metrics.items() if is_by_constituent(name)}
        for split, metrics in Card.read(run.path).metrics.items()})


def list_models() -> pd.DataFrame:
    """Which trained models come with the library?

    One row per model: `task`, `kind`, `parameters`, the `metric` that is quoted first with its
    mean on every split, `megabytes` on disk, `summary`. Needs no torch.
    """
    rows = []
    for name, folder in zoo_folders().items():
        card = Card.read(folder)
        rows.append({
            "name": name, "task": card.task.partition(":")[0], "kind": card.kind,
            "parameters": card.parameters, "metric": card.headline,
            **{split: metrics[card.headline].mean for split, metrics in card.metrics.items()},
            "megabytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6,
            "summary": card.summary})
    columns = ["name", "task", "kind", "parameters", "metric", "train", "test", "ood", "unknown",
               "megabytes", "summary"]
    return pd.DataFrame(rows, columns=columns).set_index("name")


def load_model(
    run: Run | str | Path, *, step: int | None = None, device: str | torch.device = "cpu"
) -> HookedTransformer:
    """Return a trained model of the zoo, such as `sraven-hyla`, or of a run, for evaluation.

    Args:
        run: A model of the zoo, a run, its folder or its address.
        step: The checkpoint; default: the newest.
        device: Where the model is wanted.

    Raises:
        LatentCodeError: What `load_run` and `Run.load_model` raise.
    """
    return load_run(run).load_model(step, device)


@watched("extracting")
def load_codes(
    run: Run | str | Path, split: str = "ood", *, progress: Progress | None = None
) -> LatentCodes:
    """Return the codes of a model of the zoo, or those that a run keeps in `results/codes-SPLIT`.

    Codes of a model with a card are read out of it the first time, those of the instances and pairs
    that the card names, and kept in the cache folder (`LATENTCODE_CACHE`, or the user's own).

    Args:
        run: A model of the zoo, a run, its folder or its address.
        split: The split of the task whose instances are shown to the model.
        progress: Called with the instances done, of all; not called when nothing is to be done.

    Raises:
        ArtifactError: A run has neither such codes nor a card. Also what `load_run` and `extract`
            raise.
    """
    run = load_run(run)
    stored = run.path / RESULTS / f"codes-{split}"
    if stored.is_dir():
        return LatentCodes.load(stored)
    check((run.path / CARD).is_file(), f"{run.path} holds no codes of split {split!r}, and no card "
          "that says which; `latentcode.extract` reads codes out of the model", ArtifactError)
    wanted = Card.read(run.path).codes
    step = run.checkpoints()[-1]
    described = {**header("latentcode.codes"), "software": software(), "run": run.id, "step": step,
                 "model": run.load_checkpoint(step).sha256, "split": split, **asdict(wanted)}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    folder = default_cache() / "zoo" / f"{run.path.name}-{split}-{digest[:12]}"
    with suppress(ArtifactError):  # what is kept may be damaged, and can be computed again
        return LatentCodes.load(folder)
    from latentcode.subjects import extract  # which needs torch
    from latentcode.tasks import make_task

    task = make_task(run.config.task)
    check_choice("split", split, task.splits)
    out: Path | None = folder
    try:
        check_writable(folder)
    except RunError as error:
        warnings.warn(f"codes are not kept: {error}", stacklevel=2)
        out = None
    # As probes draw them, and the explorer: fuzzy logic with one context for all.
    return extract(run, split=split, n=wanted.n, pairs=wanted.pairs, seed=wanted.seed,
                   problems=task.probe_config, out=out, overwrite=True, progress=progress)
