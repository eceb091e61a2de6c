"""How are the models of the zoo made? An entry from a trained run, with all that comes with it.

    latentcode train sraven --kind hyla --out runs/sraven-hyla
    python -m latentcode.experiments.zoo runs/sraven-hyla --name sraven-hyla

copies the model (`Run.publish`), measures it on fresh instances of every split, reads codes of
held-out combinations out of it, projects them, probes them with all controls, compares mean codes,
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
from latentcode.codes.of_tasks import extract
from latentcode.config import LogicConfig, RunConfig, SravenConfig, TaskConfig
from latentcode.config.presets import PRESETS, preset
from latentcode.errors import ConfigError, check
from latentcode.experiments.sweep import GRIDS, load_grid
from latentcode.files.storage import check_free, checksums, install_folder, parse_json, write_text
from latentcode.metrics import Metric
from latentcode.models.config import kind_of
from latentcode.probes.common.labels import label_columns
from latentcode.probes.decoding.of_run import decode
from latentcode.probes.interventions import Intervention, intervene
from latentcode.probes.projection.of_codes import project_codes
from latentcode.probes.projection.result import OURS, ProjectionResult
from latentcode.probes.similarity.of_run import similarity
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import ZOO
from latentcode.runs.run import CONFIG, TIMING
from latentcode.tasks import Task, make_task
from latentcode.training import evaluate
from latentcode.zoo.card import CARD, README, Card, Evaluation, StoredCodes
from latentcode.zoo.zoo import RESULTS

SPLIT = "ood"
"""Whose codes come with a model: the held-out combinations, as in the paper's figures."""
SEED = 0
PRECISION = "float32"
TOLERANCE = 5e-4
"""Of a metric: an accuracy over 16,000 instances moves by this when 8 answers flip."""
CODE_TOLERANCE = 1e-4
DIGITS = 5
"""Decimals of the tables of mean codes and cosines."""
SAMPLES = 1
"""Single instances in the tables of mean codes, whose whole population is beside them."""
METHODS: dict[str, str] = {"tsne": "t-SNE", "umap": "UMAP", "pca": "PCA"}
KIND_TITLES: dict[str, str] = {"hyla": "HYLA"}
"""Kinds that are written otherwise in prose."""
TASK_TITLES: dict[str, str] = {"sraven": "SRAVEN", "logic": "fuzzy logic"}


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
        codes = extract(run, SPLIT, n=self.n_codes, pairs=pairs, seed=SEED, task=task.probe_config,
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
        intervene(run, interventions(run.config.model.n_layers), n=self.n_interventions, seed=SEED,
                  progress=bar("writing codes back")).save(folder / "interventions", figures=False)
        return codes

    def _card(self, run: Run, source: Run, codes: LatentCodes) -> Card:
        config, step = run.config, run.checkpoints()[-1]
        task, model, kind = make_task(config.task), run.load_model(), kind_of(config.model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        how = Evaluation(self.n, SEED, PRECISION, TOLERANCE)
        return Card(
            name=self.name,
            summary=f"A {config.model.n_layers}-layer transformer with "
                    f"{KIND_TITLES.get(kind, kind)} attention, trained on "
                    f"{_in_short(config.task)} for {step:,} updates on {_place(source)}.",
            notes=notes(config, step, _place(source)), task=describe_task(config.task),
            model=describe_model(config), kind=kind, headline=task.headline,
            parameters=parameters, training=describe_training(source, step),
            commands={"train": training_command(config, self.name),
                      "build": self._command(trained_folder(config, self.name))},
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
            f"codes-{SPLIT}": f"codes of {len(codes):,} instances of held-out combinations, all "
                              f"layers, pairs {pairs}",
            **{f"projection-{method}": f"these codes in two dimensions ({METHODS[method]})"
               for method in self.methods},
            "decoding": "what logistic probes read out of the codes of these pairs, beside an "
                        "untrained model, shuffled labels and the residual stream",
            "similarity": f"mean codes of `{codes.pairs[0].name}` and their cosines, with the same "
                          "controls",
            "interventions": "what becomes of the answers when codes are replaced by a minimal "
                             "pair's, with controls"}


def measured(model: Any, task: Task, how: Evaluation) -> dict[str, dict[str, Metric]]:
    """Return the metrics of a model on every split of its task, without those of nothing."""
    metrics = {split: evaluate(model, task, split, how.n, seed=how.seed, precision=how.precision,
                               progress=bar(f"evaluating {split}"))
               for split in task.splits}
    return {split: {name: metric for name, metric in found.items() if metric.n}
            for split, found in metrics.items()}


def informative_pairs(task: TaskConfig) -> tuple[str, ...]:
    """Return the paper's pair, and one that attends from the same query to the context.

    SRAVEN: to the last context panel of the same row, the pair that the official code reads.
    Fuzzy logic: to the last example.
    """
    if isinstance(task, SravenConfig):
        return "response->response", f"response->row{task.grid_size}.panel{task.grid_size - 1}"
    assert isinstance(task, LogicConfig)
    return "query->query", f"query->example.{task.n_examples - 2}"


def colours(task: Task, codes: LatentCodes) -> list[str]:
    """Return what colours the points: the labels that probes decode, the target, correctness.

    Labels that several classes of an instance share cannot colour a point.
    """
    first = codes.pairs[0].name
    single = [name for name in task.probe_labels if not label_columns(codes, name, first)[1]]
    return [*single, "target", task.headline]


def interventions(n_layers: int) -> list[Intervention]:
    """Return what tells most: donor and same-rule codes at growing scopes, with controls.

    In the upper half of the layers and in all; values in place of codes, which switch most answers
    of softmax attention; random codes, which must break it, and its own, which must not.
    """
    upper, every = tuple(range(n_layers // 2, n_layers)), tuple(range(n_layers))
    chosen = [Intervention(write, scope, layers) for scope in ("pair", "row", "everything")
              for layers in (upper, every) for write in ("donor", "same")]
    chosen += [Intervention(write, scope, layers)
               for scope, layers in (("row", upper), ("everything", every))
               for write in ("random", "identity")]
    chosen += [Intervention(write, "everything", every, site="value")
               for write in ("donor", "same")]
    return list(dict.fromkeys(chosen))


def slim(planes: ProjectionResult) -> ProjectionResult:
    """Return planes in float32 with the labels that colour them; the codes have all others."""
    kept = planes.coordinates[[*OURS, *planes.settings["labels"]]]
    return replace(planes, coordinates=kept.astype(
        {"projection_x": np.float32, "projection_y": np.float32}))


def rounded(result: SimilarityResult) -> SimilarityResult:
    """Return the tables with `DIGITS` decimals, a third of the size."""
    tables: dict[str, Any] = {
        name: getattr(result, name).round(DIGITS) for name in SimilarityResult.COLUMNS}
    return replace(result, **tables)


def setting_of(config: RunConfig) -> str | None:
    """Return the preset that a configuration trains like, or None.

    What a preset leaves open: seed, split, device, precision, and how often to look and save.
    """
    def essence(c: RunConfig) -> tuple[object, ...]:
        t = c.training
        task = (replace(c.task, split_seed=0) if isinstance(c.task, LogicConfig | SravenConfig)
                else c.task)
        return (task, c.model, t.steps, t.batch_size, t.learning_rate, t.weight_decay,
                t.warmup_steps, t.grad_clip)

    for name in PRESETS:
        try:
            if essence(preset(name, config.task.name, kind_of(config.model))) == essence(config):
                return name
        except ConfigError:
            return None  # a kind or task that no preset has
    return None


def notes(config: RunConfig, step: int, place: str) -> tuple[str, ...]:
    """Return what a user must know, one sentence or two each."""
    setting, training = setting_of(config), config.training
    size = f"{step:,} updates of {training.batch_size} instances on {place}"
    told = {
        "paper": f"It was trained at the paper's setting (Table A3): {size}.",
        "smoke": f"It was trained for seconds, for tests: {size}. It has learnt nothing.",
        "small": f"It was trained at the library's setting `small`, {size}, far less than the "
                 "paper's. It draws no verdict on which kind of attention is better.",
    }.get(setting or "", f"It was trained at a setting of its own, {size}; see `{CONFIG}`.")
    found = [told]
    if isinstance(config.task, SravenConfig):
        published = preset("paper", "sraven").task
        assert isinstance(published, SravenConfig)
        if not config.task.permuted:
            found.append("The features of a panel are not permuted, so that a token of one panel "
                         f"and the same token of another show the same feature, and there are "
                         f"{config.task.n_features} of them; the paper permutes "
                         f"{published.n_features}. Nothing here carries over to that task by "
                         "itself.")
    if step < training.steps:
        found.append(f"Training was to take {training.steps:,} updates and did not finish.")
    found.append("It is one model of one seed: nothing here says how much another seed differs.")
    return tuple(found)


def describe_task(task: TaskConfig) -> str:
    """Return the task in one line: its name, a colon, its settings."""
    if isinstance(task, SravenConfig):
        permuted = "permuted" if task.permuted else "not permuted"
        facts = (f"{task.n_features} features of {task.n_values} values in a {task.grid_size} x "
                 f"{task.grid_size} grid, {permuted} between panels")
    else:
        assert isinstance(task, LogicConfig)
        facts = (f"functions of {task.n_variables} variables with {task.n_terms} terms, given by "
                 f"{task.n_examples - 1} examples in context (sequence {task.n_examples})")
    return (f"{TASK_TITLES[task.name]}: {facts}; {task.ood_fraction:.0%} of the combinations held "
            f"out (split seed {task.split_seed})")


def describe_model(config: RunConfig) -> str:
    """Return the architecture in one line."""
    model = config.model
    return (f"{kind_of(model)} attention, {model.n_layers} layers, width {model.d_model}, "
            f"{model.n_heads} heads of {model.d_head}, feed-forward {model.d_mlp}; a code has "
            f"{model.n_heads} numbers")


def describe_training(run: Run, step: int) -> dict[str, Any]:
    """Return what was asked of training, and where it ran."""
    asked, facts, took = run.config.training, run.provenance, minutes(run)
    return {
        "updates": step, "batch size": asked.batch_size, "instances": step * asked.batch_size,
        "learning rate": asked.learning_rate, "weight decay": asked.weight_decay,
        "attention dropout": run.config.model.attention_dropout,
        "seed": asked.seed, "precision": asked.precision,
        "minutes": "not known" if took is None else took,
        "device": f"{facts['device_name']}, threads: {facts['threads']}",
        "software": ", ".join(f"{name} {facts[name]}" for name in (
            "latentcode", "torch", "transformer_lens", "numpy", "python")),
        "commit": facts["git_commit"], "run": facts["id"], "trained": facts["created"],
        "configuration": facts["config_hash"]}


def minutes(run: Run) -> float | None:
    """Return how long training took, all its parts together; None where no clock was kept."""
    path = run.path / TIMING
    if not path.exists():
        return None
    parts = [0.0]
    for line in path.read_text(encoding="utf-8").splitlines():
        record = parse_json(line)
        if record["event"] == "start":
            parts.append(0.0)
        parts[-1] = record["seconds"]
    return round(sum(parts) / 60, 1)


def training_command(config: RunConfig, name: str) -> str:
    """Return the command that trains this configuration."""
    grid = _grid_of(config)
    if grid is not None:
        return f"latentcode sweep --grid {grid[0]} --out runs/{grid[0]}"
    return (f"latentcode train {config.task.name} --config models/zoo/{name}/{CONFIG} "
            f"--out runs/{name}")


def trained_folder(config: RunConfig, name: str) -> str:
    """Return the run folder that `training_command` makes."""
    grid = _grid_of(config)
    return f"runs/{name}" if grid is None else f"runs/{grid[0]}/{grid[1]}"


def _grid_of(config: RunConfig) -> tuple[str, str] | None:
    """Return the library's grid that trains this configuration, and its member."""
    for name in GRIDS:
        for member, other in load_grid(name).members().items():
            if other == config:
                return name, member
    return None


def _in_short(task: TaskConfig) -> str:
    if isinstance(task, SravenConfig):
        permuted = "permuted" if task.permuted else "not permuted"
        return f"SRAVEN with {task.n_features} features that are {permuted}"
    assert isinstance(task, LogicConfig)
    return f"fuzzy logic with {task.n_terms} terms of {task.n_variables} variables"


def _place(run: Run) -> str:
    facts = run.provenance
    if facts["device"] != "cpu":
        return str(facts["device_name"])
    return f"a CPU ({facts['threads']} thread{'s' if facts['threads'] != 1 else ''})"


def _files(folder: Path) -> dict[str, str]:
    """Return the checksum of every file of an entry but its card, by path."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                   if path.is_file() and path.name != CARD)
    return checksums(folder, paths)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build an entry from the command line."""
    tyro.cli(Build, args=arguments, prog="python -m latentcode.experiments.zoo",
             config=(tyro.conf.FlagCreatePairsOff,)).run()

