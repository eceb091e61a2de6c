"""Two hardly trained runs of one text, for the pages that show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from text_files import write_documents

import latentcode as lc
from latentcode.presets import follow_task

N_TOKENS = 24


def hardly_trained(root: Path) -> Path:
    """Return the folder of `first` and `second`, of a text that says <b> where a sentence ends."""
    documents = write_documents(root / "documents")
    for file in documents.rglob("*.txt"):
        file.write_text(file.read_text(encoding="utf-8").replace(".", "<b>*"), encoding="utf-8")
    start = lc.preset("smoke", "language", "hyla")
    task = replace(start.task, text=str(documents), n_vocabulary=300, n_tokens=N_TOKENS)
    training = replace(start.training, steps=2, warmup_steps=0, eval_every=2, eval_instances=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATENTCODE_CACHE", str(root / "cache"))
        for seed, name in enumerate(("first", "second")):
            config = replace(start, task=task, training=replace(training, seed=seed),
                             model=replace(start.model, **follow_task(start.task, task)))
            lc.train(config, root / "runs" / name, progress=False)
    return root / "runs"
