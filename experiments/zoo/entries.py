"""How are the models of the zoo made? An entry from a trained run, with all that comes with it.

    latentcode train sraven --kind hyla --out runs/sraven-hyla
    python -m latentcode.experiments.zoo runs/sraven-hyla --name sraven-hyla

copies the model (`Run.publish`), measures it on fresh instances of every split, reads codes of
held-out instances out of it, projects them, probes them with all controls, compares mean codes,
writes codes back, and puts what it finds beside a card (`latentcode.zoo.card`). The pictures of
the results are left out: what they show can be drawn again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from latentcode.codes import LatentCodes
from latentcode.config import LanguageConfig, LogicConfig, SravenConfig, TaskConfig
from latentcode.config.training import Precision
from latentcode.errors import ConfigError, check
from latentcode.experiments.zoo.describe import (
    KIND_TITLES,
    TASK_TITLES,
    describe_model,
    describe_task,
    describe_training,
    in_short,
    notes,
    place_of,
    training_command,
)
from latentcode.files.storage import check_free, checksums, install_folder, write_text
from latentcode.metrics import Metric
from latentcode.models.config import kind_of
from latentcode.probes.common.contrasts import Contrasts
from latentcode.probes.common.labels import label_columns
from latentcode.probes.decoding.of_subject import decode
from latentcode.probes.interventions import Patch, intervene
from latentcode.probes.interventions.standard import MAPPED, SOURCES
from latentcode.probes.projection.of_codes import project_codes
from latentcode.probes.projection.result import OURS, ProjectionResult
from latentcode.probes.similarity.of_subject import similarity
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.folder import RESULTS
from latentcode.runs.named import ZOO
from latentcode.subjects import extract
from latentcode.tasks import Task, make_task
from latentcode.tasks.text.patterns import INDUCTION, PREVIOUS
from latentcode.training import evaluate
from latentcode.zoo.card import CARD, README, Card, Evaluation, StoredCodes

SPLIT = "ood"
"""Whose codes come with a model: the held-out combinations, as in the paper's figures, or held-out
documents."""
SEED = 0
PRECISION: Precision = "float32"
TOLERANCE = 5e-4
"""Of a metric: an accuracy over 16,000 instances moves by this when 8 answers flip."""
CODE_TOLERANCE = 1e-4
DIGITS = 5
"""Decimals of the tables of mean codes and cosines."""
SAMPLES = 1
"""Single instances in the tables of mean codes: the entry's codes hold all of them."""
METHODS: dict[str, str] = {"tsne": "t-SNE", "umap": "UMAP", "pca": "PCA"}


@dataclass(frozen=True)
class Build:
    """Make an entry of the zoo from a trained run."""

    run_folder: tyro.conf.Positional[Path]
    """The run; its newest checkpoint is published."""
    name: str
    """Name of the entry, such as sraven-hyla."""
    out: Path = ZOO
    """Folder of the entries."""
    n: int = 16_000
    """Fresh instances of each split for the metrics."""
    n_codes: int = 2_000
    """Instances whose codes are kept and projected."""
    n_probe: int = 4_096
    """Instances that probes are fitted on, and that they are scored on."""
    n_interventions: int = 2_000
    """Instances drawn for the interventions; those count that the model answers."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Projections: tsne, umap, pca."""
    overwrite: bool = False
    """Replace an entry of that name."""

    def run(self) -> None:
        began = time.monotonic()
        entry = self.build()
        megabytes = sum(f.stat().st_size for f in entry.rglob("*") if f.is_file()) / 1e6
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {entry}, {megabytes:.2f} MB")

    def build(self) -> Path:
        """Make the entry, all or nothing, and return its folder."""
        check(Path(self.name).name == self.name and self.name not in ("", ".", ".."),
              f"name is {self.name!r}; expected a word such as sraven-hyla", ConfigError)
        entry, source = self.out / self.name, Run.open(self.run_folder)
        check_free(entry, overwrite=self.overwrite, marker=CARD)
        task = source.config.task.name
        check(task in TASK_TITLES, f"{self.run_folder} is of task {task!r}; expected "
              f"{' or '.join(TASK_TITLES)}, whose models the zoo holds", ConfigError)
        self.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=self.out) as temporary:
            # Under its own name, which the codes keep.
            run = source.publish(Path(temporary) / self.name)
            codes = self._fill(run, Path(temporary) / "cache")
            card = self._card(run, source, codes)
            write_text(run.path / README, card.to_markdown())
            replace(card, files=_files(run.path)).write(run.path)
            install_folder(run.path, entry)
        return entry

    def _fill(self, run: Run, cache: Path) -> LatentCodes:
        """Put codes and results into `results/`."""
        folder = run.path / RESULTS
        folder.mkdir()
        task = make_task(run.config.task)
        pairs = informative_pairs(run.config.task)
        # As probes draw them, and the explorer: fuzzy logic with one context for all.
        codes = extract(run, split=SPLIT, n=self.n_codes, pairs=pairs, seed=SEED,
                        problems=task.probe_config,
                        out=folder / f"codes-{SPLIT}", progress=bar("extracting"))
        for method in self.methods:
            planes = project_codes(codes, colours(task, codes), method=method, seed=SEED,
                                   cache=cache, progress=bar(f"projecting, {method}"))
            slim(planes).save(folder / f"projection-{method}", figures=False)
        decode(run, pairs=pairs, n_train=self.n_probe, n_heldout=self.n_probe, seed=SEED,
              progress=bar("fitting probes")).save(folder / "decoding", figures=False)
        rounded(similarity(
            run, n=self.n_probe, pairs=pairs[:1], seed=SEED, n_samples=SAMPLES,
            progress=bar("comparing codes"))).save(folder / "similarity", figures=False)
        intervene(run, interventions=interventions(run.config.model.n_layers),
                  n=self.n_interventions, seed=SEED,
                  progress=bar("writing codes back")).save(folder / "interventions", figures=False)
        return codes

    def _card(self, run: Run, source: Run, codes: LatentCodes) -> Card:
        config, step = run.config, run.checkpoints()[-1]
        task, model, kind = make_task(config.task), run.load_model(), kind_of(config.model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        how = Evaluation(self.n, SEED, PRECISION, TOLERANCE)
        train, folder = training_command(config, self.name)
        return Card(
            name=self.name,
            summary=f"A {config.model.n_layers}-layer transformer with "
                    f"{KIND_TITLES.get(kind, kind)} attention, trained on "
                    f"{in_short(config.task)} for {step:,} updates on {place_of(source)}.",
            notes=notes(config, step, place_of(source)), task=describe_task(config.task),
            model=describe_model(config), kind=kind, headline=task.headline,
            parameters=parameters, training=describe_training(source, step),
            commands={"train": train, "build": self._command(folder)},
            evaluation=how, metrics=measured(model, task, how),
            codes=StoredCodes(SPLIT, len(codes), SEED, tuple(p.name for p in codes.pairs),
                              CODE_TOLERANCE),
            results=self._described(codes), files={})

    def _command(self, run_folder: str) -> str:
        """Return the command that builds this entry, with all that is not the default."""
        flags: list[tuple[str, ...]] = [("--name", self.name)]
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name.startswith("n_") or known.name in ("n", "methods"):
                words = value if isinstance(value, tuple) else (str(value),)
                flags += [(f"--{known.name.replace('_', '-')}", *words)] * (value != known.default)
        return " ".join(["python -m latentcode.experiments.zoo", run_folder,
                         *(word for flag in flags for word in flag)])

    def _described(self, codes: LatentCodes) -> dict[str, str]:
        pairs = " and ".join(f"`{pair.name}`" for pair in codes.pairs)
        return {
            f"codes-{SPLIT}": f"codes of {len(codes):,} instances of split `{SPLIT}`, all layers, "
                              f"pairs {pairs}",
            **{f"projection-{method}": f"these codes in two dimensions ({METHODS[method]})"
               for method in self.methods},
            "decoding": "what logistic probes read out of the codes of these pairs, beside an "
                        "untrained model, shuffled labels and the residual stream",
            "similarity": f"mean codes of `{codes.pairs[0].name}` and their cosines, with the same "
                          "controls",
            "interventions": "what becomes of the answers when codes are replaced by those of "
                             "sources that differ in operation, operands or both, with controls"}


def measured(model: Any, task: Task, how: Evaluation) -> dict[str, dict[str, Metric]]:
    """Return the metrics of a model on every split of its task, without those of no instances."""
    metrics = {split: evaluate(model, task, split, how.n, seed=how.seed, precision=how.precision,
                               progress=bar(f"evaluating {split}"))
               for split in task.splits}
    return {split: {name: metric for name, metric in found.items() if metric.n}
            for split, found in metrics.items()}


def informative_pairs(task: TaskConfig) -> tuple[str, ...]:
    """Return the paper's pair, and one that attends from the same query to the context.

    SRAVEN: to the last context panel of the same row, the pair that the official code reads.
    Fuzzy logic: to the last example. Text, of which the paper reads no pair: the induction pair,
    and the one to the previous token.
    """
    if isinstance(task, LanguageConfig):
        return INDUCTION, PREVIOUS
    if isinstance(task, SravenConfig):
        return "response->response", f"response->row{task.grid_size}.panel{task.grid_size - 1}"
    assert isinstance(task, LogicConfig)
    return "query->query", f"query->example.{task.n_examples - 2}"


def colours(task: Task, codes: LatentCodes) -> list[str]:
    """Return what colours the points: the labels that probes decode, the target, correctness.

    Labels that several classes of an instance share cannot colour a point. A text has more targets
    than colours, and only the answer at the query is right or wrong.
    """
    first = codes.pairs[0].name
    single = [name for name in task.probe_labels if not label_columns(codes, name, first)[1]]
    return [*single, *(("target", task.headline) if task.headline in codes.labels
                       else ("query_accuracy",))]


def interventions(n_layers: int) -> list[Patch]:
    """Return what tells most: the sources of a factorial at growing scopes, with controls.

    In the upper half of the layers and in all, the paper's pair in the upper half; values in place
    of codes; random codes, which must break the answer, and its own, which must not.
    """
    upper, every = tuple(range(n_layers // 2, n_layers)), tuple(range(n_layers))
    mapped = [(scope, layers) for scope in MAPPED for layers in (upper, every)]
    chosen = [Patch(patch, scope, layers)
              for scope, layers in (("pair", upper), *mapped) for patch in SOURCES]
    chosen += [Patch(patch, scope, layers)
               for scope, layers in (("row", upper), ("everything", every))
               for patch in ("random", "identity")]
    chosen += [Patch(patch, "everything", every, site="value") for patch in SOURCES]
    return list(dict.fromkeys(chosen))


def slim(planes: ProjectionResult) -> ProjectionResult:
    """Return planes in float32 with the labels that colour them; the codes have all others."""
    kept = planes.coordinates[[*OURS, *planes.settings["labels"]]]
    return replace(planes, coordinates=kept.astype(
        {"projection_x": np.float32, "projection_y": np.float32}))


def rounded(result: SimilarityResult) -> SimilarityResult:
    """Return the tables with `DIGITS` decimals, a third of the size."""
    tables: dict[str, Any] = {
        name: table.round(DIGITS) for name, table in result.tables().items()}
    return replace(result, **tables | {"contrasts": Contrasts(tables["contrasts"])})


def _files(folder: Path) -> dict[str, str]:
    """Return the checksum of every file of an entry but its card, by path."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                   if path.is_file() and path.name != CARD)
    return checksums(folder, paths)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build an entry from the command line."""
    tyro.cli(Build, args=arguments, prog="python -m latentcode.experiments.zoo",
             config=(tyro.conf.FlagCreatePairsOff,)).run()
