"""A zoo of one tiny model: everything that an entry has, without what probes find."""

from __future__ import annotations

from pathlib import Path

import latentcode as lc
from latentcode.experiments.zoo import measure
from latentcode.zoo import README, Card, CodesOfCard, Evaluation

NAME = "tiny-hyla"
PAIRS = ("response->response", "response->row3.panel2")


def tiny_run(folder: Path) -> lc.Run:
    """Train a model of the smoke setting."""
    return lc.train(lc.preset("smoke", "sraven", "hyla"), folder, progress=False)


def tiny_zoo(run: lc.Run, folder: Path) -> Path:
    """Make a zoo in a folder, and return the folder of its entry."""
    entry = run.publish(folder / NAME)
    model, task = entry.load_model(), lc.make_task(entry.config.task)
    how = Evaluation(n=300, seed=0, precision="float32", tolerance=5e-4)
    card = Card(
        name=NAME, summary="A tiny model.", notes=("It has learnt nothing.",), task="SRAVEN: tiny",
        model="hyla attention", kind="hyla", headline="accuracy",
        parameters=sum(p.numel() for p in model.parameters()), training={"updates": 30},
        commands={"train": "latentcode train", "build": "by hand"},
        evaluation=how, metrics=measure(model, task, how),
        codes=CodesOfCard("ood", 80, 0, PAIRS))
    (entry.path / README).write_text(card.to_markdown(), encoding="utf-8")
    card.write(entry.path)
    return entry.path
