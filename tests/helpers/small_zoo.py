"""A zoo of one tiny model: everything that an entry has, without what probes find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import latentcode as lc
from latentcode.experiments.zoo.entries import measured
from latentcode.files.storage import checksums
from latentcode.zoo.card import CARD, README, Card, Evaluation, StoredCodes

NAME = "tiny-hyla"
PAIRS = ("response->response", "response->row3.panel2")


def tiny_run(folder: Path) -> lc.Run:
    """Train a model of the smoke setting."""
    return lc.train(lc.preset("smoke", "sraven", "hyla"), folder, progress=False)


def tiny_zoo(run: lc.Run, folder: Path) -> Path:
    """Make a zoo in a folder, and return the folder of its entry."""
    entry = run.publish(folder / NAME)
    codes = lc.extract(entry, split="ood", n=80, pairs=PAIRS, out=entry.path / "results/codes-ood")
    model, task = entry.load_model(), lc.make_task(entry.config.task)
    how = Evaluation(n=300, seed=0, precision="float32", tolerance=5e-4)
    card = Card(
        name=NAME, summary="A tiny model.", notes=("It has learnt nothing.",), task="SRAVEN: tiny",
        model="hyla attention", kind="hyla", headline="accuracy",
        parameters=sum(p.numel() for p in model.parameters()), training={"updates": 30},
        commands={"train": "latentcode train", "build": "by hand"},
        evaluation=how, metrics=measured(model, task, how),
        codes=StoredCodes("ood", len(codes), 0, PAIRS, 1e-4), results={"codes-ood": "codes"},
        files={})
    (entry.path / README).write_text(card.to_markdown(), encoding="utf-8")
    sign(entry.path, card)
    return entry.path


def sign(entry: Path, card: Card) -> None:
    """Write the card with the checksums of the files as they are now."""
    names = sorted(path.relative_to(entry).as_posix() for path in entry.rglob("*")
                   if path.is_file() and path.name != CARD)
    replace(card, files=checksums(entry, names)).write(entry)
