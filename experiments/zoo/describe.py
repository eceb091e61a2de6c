"""What does the card of a zoo entry say? Sentences about a configuration and its training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latentcode.config import LanguageConfig, LogicConfig, RunConfig, SravenConfig, TaskConfig
from latentcode.config.presets import PRESETS, preset
from latentcode.errors import ConfigError
from latentcode.experiments.paper.runs import signature
from latentcode.experiments.timing import minutes
from latentcode.models.config import kind_of
from latentcode.runs import Run
from latentcode.runs.folder import CONFIG
from latentcode.sweep import GRIDS, load_grid

KIND_TITLES: dict[str, str] = {"hyla": "HYLA"}
"""Kinds that are written otherwise in prose."""
TASK_TITLES: dict[str, str] = {"sraven": "SRAVEN", "logic": "fuzzy logic", "language": "text"}


def setting_of(config: RunConfig) -> str | None:
    """Return the preset that a configuration trains like, or None.

    What a preset leaves open: seed, split, device, precision, and how often to look and save.
    """
    for name in PRESETS:
        try:
            of_preset = preset(name, config.task.name, kind_of(config.model))
        except ConfigError:
            return None  # a kind or task that no preset has
        if signature(of_preset) == signature(config):
            return name
    return None


def notes(config: RunConfig, step: int, place: str) -> tuple[str, ...]:
    """Return what a user must know, one sentence or two each."""
    setting, training = setting_of(config), config.training
    papers = preset("paper", config.task.name)
    size = f"{step:,} updates of {training.batch_size} instances on {place}"
    of_papers = f"{papers.training.steps:,} of {papers.training.batch_size}"
    told = {
        "paper": f"It was trained at the paper's setting (Table A3): {size}.",
        "smoke": f"It was trained for seconds, for tests: {size}. It has learnt nothing.",
        "small": f"It was trained at the library's setting `small`, {size}, far less than the "
                 "paper's. It draws no verdict on which kind of attention is better.",
    }.get(setting or "", f"It was trained at a setting of its own (`{CONFIG}`), {size}; the "
                         f"paper's takes {of_papers}. It draws no verdict on which kind of "
                         "attention is better.")
    found = [told]
    if isinstance(config.task, SravenConfig) and not config.task.permuted:
        assert isinstance(papers.task, SravenConfig)
        found.append("The features of a panel are not permuted, so that a token of one panel "
                     f"and the same token of another show the same feature, and there are "
                     f"{config.task.n_features} of them; the paper permutes "
                     f"{papers.task.n_features}. Nothing here carries over to that task by "
                     "itself.")
    if isinstance(config.task, LanguageConfig):
        found.append(f"It knows the {config.task.n_vocabulary:,} tokens of `{config.task.text}`, "
                     "and was never shown another text.")
    if step < training.steps:
        found.append(f"Training was to take {training.steps:,} updates and did not finish.")
    found.append("It is one model of one seed: nothing here says how much another seed differs.")
    return tuple(found)


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


def describe_model(config: RunConfig) -> str:
    """Return the architecture in one line."""
    model = config.model
    return (f"{kind_of(model)} attention, {model.n_layers} layers, width {model.d_model}, "
            f"{model.n_heads} heads of {model.d_head}, feed-forward {model.d_mlp}; a code has "
            f"{model.n_heads} numbers")


def describe_training(run: Run, step: int) -> dict[str, Any]:
    """Return the settings of a training, and where it ran."""
    asked, facts, took = run.config.training, run.provenance, minutes(run.path)
    return {
        "updates": step, "batch size": asked.batch_size, "instances": step * asked.batch_size,
        "learning rate": asked.learning_rate, "weight decay": asked.weight_decay,
        "attention dropout": run.config.model.attention_dropout,
        "seed": asked.seed, "precision": asked.precision,
        "minutes": "not known" if took is None else took,
        "device": f"{facts['device_name']}, threads: {facts['threads']}",
        "software": ", ".join(f"{name} {facts[name]}" for name in (
            "latentcode", "torch", "transformer_lens", "numpy", "python")),
        "commit": facts["git_commit"] or "not known", "run": facts["id"],
        "trained": facts["created"], "configuration": facts["config_hash"]}


def training_command(config: RunConfig, name: str) -> tuple[str, str]:
    """Return the command that trains this configuration, and the run folder that it makes."""
    task = config.task
    # A grid does not say in which state the text was.
    asked = replace(config, task=replace(task, revision="")) if isinstance(
        task, LanguageConfig) else config
    for grid in GRIDS:
        for member, other in load_grid(grid).members().items():
            if other == asked:
                return f"latentcode sweep --grid {grid} --out runs/{grid}", f"runs/{grid}/{member}"
    return (f"latentcode train {config.task.name} --config models/zoo/{name}/{CONFIG} "
            f"--out runs/{name}", f"runs/{name}")


def in_short(task: TaskConfig) -> str:
    if isinstance(task, LanguageConfig):
        return f"the text `{task.text}`"
    if isinstance(task, SravenConfig):
        permuted = "permuted" if task.permuted else "not permuted"
        return f"SRAVEN with {task.n_features} features that are {permuted}"
    assert isinstance(task, LogicConfig)
    return f"fuzzy logic with {task.n_terms} terms of {task.n_variables} variables"


def place_of(run: Run) -> str:
    facts = run.provenance
    if facts["device"] != "cpu":
        return str(facts["device_name"])
    return f"a CPU ({facts['threads']} thread{'s' if facts['threads'] != 1 else ''})"
