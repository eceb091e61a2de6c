"""Which relation is asked? Codes of a pretrained language model, end to end on the command line.

    python -m latentcode.experiments.studies.relations --out experiments/results/relations

1. A world of made-up countries with a capital, a language, a currency and a dish, and a GPT-2 of
   few layers that learns it from sentences such as "the capital of Arvenia is Monburg". Some facts
   are left out of training in one of their phrasings.
2. `latentcode extract | decode | intervene`, with `--prompts`, on the folder that
   `save_pretrained` wrote: is the relation in the codes of the last token? Does the answer follow
   the codes of the same sentence about another relation?

Five minutes of one CPU core. Writes `README.md`, which says what the numbers say, and the results
of the commands. If interrupted, it starts again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.errors import check
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.relations.commands import commands, folder_of, run_command
from latentcode.experiments.studies.relations.page import Found, findings, page
from latentcode.experiments.studies.relations.world import (
    PHRASINGS,
    make_sentences,
    minimal_pairs,
    prompts,
    train_language_model,
)
from latentcode.files.storage import check_free, replace_folder, write_text
from latentcode.progress import bar

MARKER = "relations.json"
SENTENCES = "sentences.csv"


def main(
    out: Path = Path("experiments/results/relations"),
    work: Path = Path("runs/relations"),
    countries: int = 40,
    steps: int = 1_000,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Train a language model on a made-up world, ask what its codes say and cause.

    Args:
        out: Folder of the page, the tables and the figures.
        work: Folder of the model, the prompts and the codes; replaced by every call.
        countries: Number of countries.
        steps: Number of updates of the language model.
        seed: Seed of the world and of the model.
        overwrite: Replace a result that `out` already holds.
    """
    torch.set_num_threads(1)  # two threads are slower at this size, and would vary the last bits
    check(steps >= 1, f"steps is {steps}; expected at least 1")
    check_free(out, overwrite=overwrite, marker=MARKER)
    sentences = make_sentences(countries, seed)
    with replace_folder(work, overwrite=True, marker=SENTENCES) as temporary:
        sentences.to_csv(temporary / SENTENCES, index=False)
    _write_lines(work / "prompts.jsonl", prompts(sentences))
    for order in PHRASINGS:
        _write_lines(work / f"{folder_of(order)}.jsonl", minimal_pairs(sentences, order))
    train_language_model(sentences, work / "model", steps=steps, seed=seed,
                         progress=bar("training"))
    run = commands(work)
    for arguments in run.values():
        run_command(arguments)
    found = Found.load(work)
    said = findings(found)
    settings = {"countries": countries, "steps": steps, "seed": seed, "sentences": len(sentences),
                "left_out": int((~sentences["trained"]).sum())}
    with replace_folder(out, overwrite=overwrite, marker=MARKER) as temporary:
        shutil.copytree(work / "results", temporary, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("*.png"))
        write_text(temporary / "README.md", page(found, said, list(run.values()), settings))
        drawn = {folder_of(order): both["code"].figure() for order, both in found.patched.items()}
        write_study(
            temporary, "relations",
            {"settings": settings, "accuracy": dict(found.accuracy), "findings": said},
            {f"figures/{name}.png": figure
             for name, figure in {"decoding": found.decoding.figure(), **drawn}.items()}, dpi=80)
    print("\n".join(said))
    print(f"wrote result {out}")


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    tyro.cli(main)
