"""A made-up world: its facts, sentences about them, and a language model that learns those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path

import pandas as pd
import torch

from latentcode.devices import make_generator
from latentcode.errors import check
from latentcode.experiments.examples.small_language_models import train

COUNTRIES = tuple(stem + ending for ending in ("enia", "ovia", "ora", "istan", "ua")
                  for stem in ("Arv", "Bel", "Cor", "Dal", "Est", "Fal", "Gar", "Hel"))
VALUES: Mapping[str, tuple[str, ...]] = {
    "capital": tuple(stem + ending for ending in ("burg", "ton", "ville", "grad", "port")
                     for stem in ("Mon", "Nor", "Pel", "Quin", "Ros", "Sel", "Tor", "Vel")),
    "language": ("Arvish", "Belese", "Corish", "Dalese", "Estish", "Falese", "Garish", "Helese",
                 "Ivish", "Jorese"),
    "currency": ("crown", "ducat", "florin", "guilder", "mark", "peso", "shilling", "thaler"),
    "food": ("bread", "cheese", "dumplings", "eel", "figs", "goulash", "herring", "lentils",
             "noodles", "porridge", "rice", "soup"),
}
"""Relation -> its values. A country has a capital of its own, and shares the others."""
PHRASINGS: Mapping[str, tuple[str, str]] = {
    "relation first": ("the {relation} of {country} is", "the {relation} in {country} is"),
    "country first": ("in {country} the {relation} is", "for {country} the {relation} is"),
}
"""Word order -> two phrasings of as many words, each the other's control."""
UNTRAINED_FACTS = 0.5
"""Share of the facts that are left out of training in one of their four phrasings."""
WIDTH, LAYERS, HEADS = 64, 4, 8
LEARNING_RATE, WEIGHT_DECAY, BATCH = 2e-3, 0.1, 128


def make_sentences(n_countries: int, seed: int) -> pd.DataFrame:
    """Return every sentence about a world: one row per country, relation and phrasing.

    Columns `country`, `relation`, `order`, `prompt`, `control` (the prompt in the other phrasing of
    its order), `answer`, and `trained`: whether the sentence is trained on. `ConfigError` for a
    number of countries below 4, or beyond the names that there are.
    """
    check(4 <= n_countries <= len(COUNTRIES),
          f"countries is {n_countries}; expected 4 to {len(COUNTRIES)}")
    generator = make_generator(seed, "world")
    answers = {}
    for relation, values in VALUES.items():
        chosen = (torch.randperm(len(values), generator=generator) if relation == "capital"
                  else torch.randint(len(values), (n_countries,), generator=generator))
        answers[relation] = [values[i] for i in chosen[:n_countries].tolist()]
    rows = []
    for relation in VALUES:
        for country, answer in zip(COUNTRIES[:n_countries], answers[relation], strict=True):
            left_out = -1
            if torch.rand((), generator=generator) < UNTRAINED_FACTS:
                left_out = int(torch.randint(4, (), generator=generator))
            texts = [(order, phrasing.format(relation=relation, country=country), other.format(
                relation=relation, country=country)) for order, both in PHRASINGS.items()
                for phrasing, other in permutations(both)]
            rows += [{"country": country, "relation": relation, "order": order, "prompt": prompt,
                      "control": same, "answer": answer, "trained": i != left_out}
                     for i, (order, prompt, same) in enumerate(texts)]
    return pd.DataFrame(rows)


def train_language_model(
    sentences: pd.DataFrame, folder: Path, *, steps: int, seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a GPT-2 of words on the sentences with `trained`; save it as Hugging Face does."""
    train([f"{row.prompt} {row.answer}" for row in sentences.itertuples() if row.trained], folder,
          width=WIDTH, layers=LAYERS, heads=HEADS, initializer_range=0.02, steps=steps, batch=BATCH,
          learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, seed=seed, progress=progress)
