"""An entry of the zoo, made from a trained run.

    latentcode train sraven --kind hyla --out runs/sraven-hyla
    python -m latentcode.experiments.zoo runs/sraven-hyla --name sraven-hyla

copies the model (`Run.publish`), measures it on fresh instances of every split, and writes its card
(`latentcode.zoo`).
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from latentcode.config import LanguageConfig, LogicConfig, RunConfig, SravenConfig, TaskConfig
from latentcode.errors import ConfigError, check
from latentcode.experiments.paper.runs import minutes
from latentcode.files.storage import check_free, install_folder, write_text
from latentcode.metrics import Metric
from latentcode.models.config import kind_of
from latentcode.presets import preset
from latentcode.progress import Bar
from latentcode.runs.run import CARD, CONFIG, ZOO, Run
from latentcode.sweep import GRIDS, load_grid
from latentcode.tasks import Task, make_task
from latentcode.tasks.text.tokens import INDUCTION, PREVIOUS
from latentcode.training import evaluate
from latentcode.zoo import README, Card, CodesOfCard, Evaluation

SPLIT = "ood"
"""Split whose codes `load_codes` reads: held-out combinations, as in the figures of the paper, or
held-out documents."""
SEED = 0
TOLERANCE = 5e-4
"""Of a metric: an accuracy over 16,000 instances moves by this when 8 answers flip."""
TASK_TITLES: dict[str, str] = {"sraven": "SRAVEN", "logic": "fuzzy logic", "language": "text"}


def main(
    run: tyro.conf.Positional[Path], *, name: str, out: Path = ZOO, n: int = 16_000,
    n_codes: int = 2_000, overwrite: bool = False,
) -> Path:
    """Make an entry of the zoo of a run's newest checkpoint, all or nothing.

    Args:
        run: A trained run.
        name: Name of the entry, such as sraven-hyla.
        out: Folder of the entries.
        n: Fresh instances of each split for the metrics.
        n_codes: Instances whose codes `load_codes` reads.
        overwrite: Replace an entry of that name.
    """
    check(Path(name).name == name and name not in ("", ".", ".."),
          f"name is {name!r}; expected a word such as sraven-hyla", ConfigError)
    entry, source = out / name, Run.open(run)
    check_free(entry, overwrite=overwrite, marker=CARD)
    task = source.config.task
    check(task.name in TASK_TITLES, f"{run} is of task {task.name!r}; expected "
          f"{' or '.join(TASK_TITLES)}, whose models the zoo holds", ConfigError)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as temporary:
        published = source.publish(Path(temporary) / name)
        card = describe(source, name, Evaluation(n, SEED, "float32", TOLERANCE),
                        CodesOfCard(SPLIT, n_codes, SEED, informative_pairs(task)))
        write_text(published.path / README, card.to_markdown())
        card.write(published.path)
        install_folder(published.path, entry)
    print(f"wrote {entry}")
    return entry


def measure(model: Any, task: Task, evaluation: Evaluation) -> dict[str, dict[str, Metric]]:
    """Return the metrics of a model on every split of its task, without those of no instances."""
    metrics = {split: evaluate(model, task, split, evaluation.n, seed=evaluation.seed,
                               precision=evaluation.precision, progress=Bar(f"evaluating {split}"))
               for split in task.splits}
    return {split: {name: metric for name, metric in measured.items() if metric.n}
            for split, measured in metrics.items()}


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


def describe(source: Run, name: str, evaluation: Evaluation, codes: CodesOfCard) -> Card:
    """Return the card of a run's newest checkpoint, measured here."""
    config, step, facts = source.config, source.checkpoints()[-1], source.provenance
    settings, kind, model = config.training, kind_of(config.model), source.load_model()
    place = (f"a CPU (threads: {facts['threads']})" if facts["device"] == "cpu"
             else str(facts["device_name"]))
    task, took, sizes = make_task(config.task), minutes(source.path), config.model
    train, folder = training_command(config, name)
    return Card(
        name=name, kind=kind, headline=task.headline, task=describe_task(config.task),
        summary=f"A {sizes.n_layers}-layer transformer with {kind} attention, trained on "
                f"{TASK_TITLES[config.task.name]} for {step:,} updates on {place}.",
        notes=notes(config, step, place),
        model=f"{kind} attention, {sizes.n_layers} layers, width {sizes.d_model}, "
              f"{sizes.n_heads} heads of {sizes.d_head}, feed-forward {sizes.d_mlp}; a code has "
              f"{sizes.n_heads} numbers",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        training={
            "updates": step, "batch size": settings.batch_size,
            "instances": step * settings.batch_size, "learning rate": settings.learning_rate,
            "weight decay": settings.weight_decay, "attention dropout": sizes.attention_dropout,
            "seed": settings.seed, "precision": settings.precision,
            "minutes": "not known" if took is None else took,
            "device": f"{facts['device_name']}, threads: {facts['threads']}",
            "software": ", ".join(f"{package} {facts[package]}" for package in (
                "latentcode", "torch", "transformer_lens", "numpy", "python")),
            "commit": facts["git_commit"] or "not known", "run": facts["id"],
            "trained": facts["created"], "configuration": facts["config_hash"]},
        commands={"train": train,
                  "build": f"python -m latentcode.experiments.zoo {folder} --name {name}"},
        evaluation=evaluation, metrics=measure(model, task, evaluation), codes=codes)


def notes(config: RunConfig, step: int, place: str) -> tuple[str, ...]:
    """Return what a user must know, one sentence or two each."""
    paper = preset("paper", config.task.name)
    size = f"{step:,} updates of {config.training.batch_size} instances on {place}"
    draw: Any = {name: getattr(config.task, name) for name in ("split_seed", "ood_fraction")
                 if hasattr(paper.task, name)}
    as_paper = config.task == replace(paper.task, **draw) and all(
        getattr(getattr(config, part), name) == getattr(getattr(paper, part), name)
        for part, names in (("training", ("steps", "batch_size", "learning_rate")),
                            ("model", ("n_layers", "d_model", "n_heads", "d_mlp")))
        for name in names)
    sentences = [
        f"It was trained at the paper's setting (Table A3): {size}." if as_paper else
        f"It was trained at a setting of its own (`{CONFIG}`), {size}; the paper's takes "
        f"{paper.training.steps:,} of {paper.training.batch_size}. It draws no verdict on which "
        "kind of attention is better."]
    if isinstance(config.task, SravenConfig) and not config.task.permuted:
        sentences.append(
            "The features of a panel are not permuted, so that a token of one panel and the same "
            f"token of another show the same feature, and there are {config.task.n_features} of "
            "them; the paper permutes 4. Nothing here carries over to that task by itself.")
    if isinstance(config.task, LanguageConfig):
        sentences.append(f"It knows the {config.task.n_vocabulary:,} tokens of "
                         f"`{config.task.text}`, and was never shown another text.")
    if step < config.training.steps:
        sentences.append(
            f"Training was to take {config.training.steps:,} updates and did not finish.")
    return (*sentences,
            "It is one model of one seed: nothing here says how much another seed differs.")


def describe_task(task: TaskConfig) -> str:
    """Return the task in one line: its name, a colon, its settings."""
    if isinstance(task, LanguageConfig):
        return (f"{TASK_TITLES[task.name]}: the next of {task.n_vocabulary:,} tokens in sequences "
                f"of {task.n_tokens} of `{task.text}`; `test` and `ood` are held-out documents")
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


def training_command(config: RunConfig, name: str) -> tuple[str, str]:
    """Return the command that trains this configuration, and the run folder that it makes."""
    if isinstance(config.task, LanguageConfig):  # a grid does not say in which state the text was
        config = replace(config, task=replace(config.task, revision=""))
    for grid in GRIDS:
        for member, other in load_grid(grid).members().items():
            if other == config:
                return f"latentcode sweep --grid {grid} --out runs/{grid}", f"runs/{grid}/{member}"
    return (f"latentcode train {config.task.name} --config models/zoo/{name}/{CONFIG} "
            f"--out runs/{name}", f"runs/{name}")


if __name__ == "__main__":
    tyro.cli(main)
