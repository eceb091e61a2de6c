"""What is asked of a language model that has learned a made-up world.

The world is one of countries with a capital, a language, a currency and a dish; the model learns it
from sentences such as "the capital of Arvenia is Monburg". Some facts are left out of training in
one of their phrasings. Is the relation in the codes of the last token? Does the answer follow the
codes of the same sentence about another relation?
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from latentcode import extract
from latentcode.errors import check
from latentcode.experiments.studies.relations.world import (
    HEADS,
    LAYERS,
    PHRASINGS,
    WIDTH,
    make_sentences,
    minimal_pairs,
    prompts,
    train_language_model,
)
from latentcode.files.storage import replace_folder, write_text
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.probes.interventions import InterventionResult, Patch, intervene
from latentcode.progress import bar

SENTENCES = "sentences.csv"
SCOPES: Mapping[str, str] = {"value": "everything", "residual": "row"}
"""Where the relation may be if not in the codes: the values of all words, or the residual stream at
the last word. Codes are written as `prompt_interventions` says."""


def made(work: Path, *, countries: int, steps: int, seed: int) -> Path:
    """Return the folder of a world, its prompts and its model; they are made where none is.

    countries  number of countries
    steps      number of updates of the language model
    seed       of the world and of the model
    """
    check(steps >= 1, f"steps is {steps}; expected at least 1")
    sentences = make_sentences(countries, seed)
    folder = work / f"world-{countries}-{steps}-{seed}"
    if not (folder / SENTENCES).is_file():
        torch.set_num_threads(1)  # two are slower at this size, and would vary the last bits
        with replace_folder(folder, overwrite=False, marker=SENTENCES) as temporary:
            _write_lines(temporary / "prompts.jsonl", prompts(sentences))
            for order in PHRASINGS:
                _write_lines(_pairs(temporary, order), minimal_pairs(sentences, order))
            train_language_model(sentences, temporary / "model", steps=steps, seed=seed,
                                 progress=bar("training"))
            sentences.to_csv(temporary / SENTENCES, index=False)
    return folder


def _pairs(folder: Path, order: str) -> Path:
    return folder / f"{order.replace(' ', '_')}.jsonl"


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def accuracy(work: Path, *, countries: int, steps: int, seed: int) -> dict[str, pd.DataFrame]:
    """Return how many of the sentences, trained on or not, the model completes."""
    folder = made(work, countries=countries, steps=steps, seed=seed)
    labels = extract(folder / "model", folder / "prompts.jsonl").labels
    right = (labels["next_token"].str.strip() == labels["answer"]).groupby(labels["trained"])
    return {"accuracy": pd.DataFrame({"share": right.mean(), "n": right.size()}).reset_index()}


def decoding(work: Path, *, countries: int, steps: int, seed: int) -> DecodingResult:
    """Return what the codes say of the relation, with all controls."""
    folder = made(work, countries=countries, steps=steps, seed=seed)
    return decode(folder / "model", folder / "prompts.jsonl")


def patched(
    work: Path, *, order: str, site: str, countries: int, steps: int, seed: int
) -> InterventionResult:
    """Return what writing the same sentence about another relation causes, in one word order."""
    folder = made(work, countries=countries, steps=steps, seed=seed)
    layers = [*((layer,) for layer in range(LAYERS)), tuple(range(LAYERS))]
    written = None if site == "code" else [
        Patch(patch, SCOPES[site], of, site)
        for of in layers for patch in ("interchange", "control")]
    return intervene(folder / "model", _pairs(folder, order), written, batch_size=240)


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return what the page says of the model and of its sentences, beside the tables."""
    return {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "phrasings": PHRASINGS}
