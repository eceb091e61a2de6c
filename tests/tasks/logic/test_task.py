"""Does the fuzzy-logic task compute, split, mask, label and show what the paper says?"""

from __future__ import annotations

import itertools
import json
import re
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import GOLDEN
from small_logic import generator, slow_function

from latentcode.config import LogicConfig
from latentcode.errors import SplitError
from latentcode.tasks import SPLITS, make_task
from latentcode.tasks.logic.task import FuzzyLogic, evaluate

TRAIN_OF_SEED_0 = [
    [0, 3], [0, 9], [0, 11], [1, 4], [1, 5], [1, 6], [1, 8], [2, 9], [2, 10], [3, 8],
    [3, 9], [4, 7], [4, 9], [4, 11], [5, 11], [6, 7], [6, 9], [6, 10], [7, 9], [9, 10]]
QUERY_OF_SEED_0 = [0.522157, 0.889739, 0.992948, 0.557138]

property_test = settings(max_examples=60)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of every small configuration that can be split."""
    n_variables = draw(st.integers(1, 5))
    unknown_fraction = draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8]))
    n_known = 2**n_variables - int(2**n_variables * unknown_fraction)
    n_terms = draw(st.integers(1, min(3, n_known)))
    n_combinations = comb(n_known, n_terms)
    most = n_combinations - -(-n_known // n_terms)
    n_ood = draw(st.integers(0, most))
    return {
        "n_variables": n_variables, "n_terms": n_terms, "unknown_fraction": unknown_fraction,
        "n_examples": draw(st.integers(2, 7)), "split_seed": draw(st.integers(0, 5)),
        "ood_fraction": (n_ood + 0.5) / n_combinations if n_ood else 0.0,
        "inputs": draw(st.sampled_from(["uniform", "fixed_context", "fixed_query"]))}


# --- The numbers of the released code ------------------------------------------------------------


@pytest.fixture(scope="module")
def facts() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "logic_facts.npz") as file:
        return dict(file)


def test_terms_are_numbered_as_in_the_released_code(facts: dict[str, np.ndarray]) -> None:
    signs = FuzzyLogic(LogicConfig()).signs
    assert signs.dtype == torch.bool
    np.testing.assert_array_equal(signs.numpy(), facts["logic_4_conjunctions"])


@pytest.mark.parametrize("size", ["4_2", "5_3"])
def test_values_equal_the_released_code_exactly(facts: dict[str, np.ndarray], size: str) -> None:
    signs = torch.from_numpy(facts[f"fuzzy_{size}_latent"]).bool()
    x = torch.from_numpy(facts[f"fuzzy_{size}_input"])
    values = evaluate(signs, x[:, None])
    assert values.dtype == torch.float32
    np.testing.assert_array_equal(values[:, 0].numpy(), facts[f"fuzzy_{size}_target"])


def test_counts_equal_the_released_code(facts: dict[str, np.ndarray]) -> None:
    official = json.loads(str(facts["counts_json"]))
    assert len(official) == 5
    for name, wanted in official.items():
        match = re.fullmatch(r"(\d)var_(\d)term_frac(.*)", name)
        task = FuzzyLogic(LogicConfig(
            n_variables=int(match[1]), n_terms=int(match[2]), ood_fraction=float(match[3])))
        assert len(task.signs) == wanted["num_conj"]
        assert task.config.n_known_terms == wanted["num_conj"] - wanted["num_ood_conj"]
        # What the released code calls test is our ood, and its ood our unknown.
        for split, name in (("train", "train"), ("test", "train"), ("ood", "test"),
                            ("unknown", "ood")):
            assert len(task.combinations(split)) == wanted[name]


def official_splits() -> list[tuple[str, list[Any], list[Any], list[Any]]]:
    splits = json.loads((GOLDEN / "logic_split_seed0.json").read_text())["splits"]
    found = [(f"seed 0, {f}", splits[f"train_{f}"], splits[f"heldout_{f}"],
              splits["unknown_terms"]) for f in ("0.3", "0.5", "0.7")]
    with np.load(GOLDEN / "logic_facts.npz") as facts:
        found += [(f"seed 1, {f}", facts[f"logic_4_2_train_terms_frac{f}"].tolist(),
                   facts[f"logic_4_2_test_terms_frac{f}"].tolist(),
                   facts["logic_4_2_ood_terms"].tolist()) for f in ("0.3", "0.5", "0.7")]
    return found


@pytest.mark.parametrize(("train", "held_out", "unknown"), [
    pytest.param(*split[1:], id=split[0]) for split in official_splits()])
def test_official_splits_load(train: list[Any], held_out: list[Any], unknown: list[Any]) -> None:
    """All six happen to cover the twelve known terms, which the released code does not check."""
    task = FuzzyLogic(LogicConfig(held_out=tuple(map(tuple, held_out))))
    assert task.splits == SPLITS
    assert task.combinations("train").tolist() == sorted(train)
    assert task.combinations("ood").tolist() == sorted(held_out)
    assert task.combinations("unknown").tolist() == sorted(unknown)
    assert_valid_split(task)


def test_metrics_equal_the_released_code(facts: dict[str, np.ndarray]) -> None:
    signs = facts["batch_latents"].astype(bool)
    x = torch.from_numpy(facts["batch_x"])
    task = FuzzyLogic(LogicConfig(n_examples=x.shape[1], unknown_fraction=0.0, ood_fraction=0.0))
    index = [[int("".join(str(int(bit)) for bit in term), 2) for term in terms] for terms in signs]
    rows = torch.tensor([task.combinations("train").tolist().index(terms) for terms in index])
    batch = task.build("train", rows, x[:, :, :4])
    torch.testing.assert_close(batch.inputs, x, rtol=0, atol=0)
    torch.testing.assert_close(batch.targets, torch.from_numpy(facts["batch_y"]), rtol=0, atol=0)
    torch.testing.assert_close(
        batch.info["base_mse"], torch.from_numpy(facts["batch_base_mse"])[:, 0])

    logits = torch.from_numpy(facts["batch_logits"])
    metrics = task.summarize({k: v.numpy() for k, v in task.measures(logits, batch).items()})
    assert task.loss(logits, batch).item() == pytest.approx(float(facts["batch_loss"]), rel=1e-5)
    assert metrics["loss"].mean == pytest.approx(float(facts["batch_loss"]), rel=1e-5)
    assert metrics["r2"].mean == pytest.approx(float(facts["batch_r2"]), rel=1e-5)


# --- Values ---------------------------------------------------------------------------------------


@property_test
@given(fields(), st.integers(0, 1000))
def test_values_agree_with_a_slow_reference(given_fields: dict[str, Any], seed: int) -> None:
    config = LogicConfig(**given_fields)
    task = make_task(config)
    for split in task.splits:
        batch = task.sample(split, 4, generator(seed))
        assert torch.equal(batch.info["terms"], task.combinations(split)[batch.combination])
        assert task.sample(split, 0, generator()).inputs.shape == (0, *batch.inputs.shape[1:])
        signs = task.signs[batch.info["terms"]].numpy()
        for b in range(4):
            values = [slow_function(signs[b], x) for x in batch.inputs[b, :, :-1].numpy()]
            assert batch.inputs[b, :-1, -1].tolist() == values[:-1]
            assert batch.inputs[b, -1, -1] == 0.0
            assert batch.targets[b].tolist() == values[-1:]
            assert batch.info["base_mse"][b].item() == pytest.approx(
                np.var(np.array(values, dtype=np.float64)), rel=1e-4, abs=1e-9)


# --- Splits ---------------------------------------------------------------------------------------


def assert_valid_split(task: FuzzyLogic) -> None:
    config = task.config
    n_all, n_known = 2**config.n_variables, config.n_known_terms
    sets = {split: {tuple(row) for row in task.combinations(split).tolist()}
            for split in task.splits}
    train, ood = sets["train"], sets.get("ood", set())
    assert sets["test"] == train
    assert not train & ood
    assert train | ood == set(itertools.combinations(range(n_known), config.n_terms))
    assert {term for row in train for term in row} == set(range(n_known))
    unknown = set(itertools.combinations(range(n_known, n_all), config.n_terms))
    assert sets.get("unknown", set()) == unknown
    assert task.splits == tuple(
        s for s in SPLITS if s in ("train", "test") or (ood if s == "ood" else unknown))


@property_test
@given(fields())
def test_splits_are_disjoint_and_cover_every_known_term(given_fields: dict[str, Any]) -> None:
    config = LogicConfig(**given_fields)
    task = FuzzyLogic(config)
    assert_valid_split(task)
    n_combinations = comb(config.n_known_terms, config.n_terms)
    n_ood = len(task.combinations("ood")) if "ood" in task.splits else 0
    assert n_ood == int(n_combinations * config.ood_fraction)
    for split in task.splits:
        rows = task.combinations(split)
        assert rows.dtype == torch.int64
        assert rows.tolist() == sorted(sorted(row) for row in rows.tolist())


def test_the_split_of_a_seed_never_changes() -> None:
    """A trained run would be scored on combinations that it was trained on."""
    task = FuzzyLogic(LogicConfig())
    assert task.combinations("train").tolist() == TRAIN_OF_SEED_0
    torch.testing.assert_close(
        FuzzyLogic(LogicConfig(inputs="fixed_query")).sample("ood", 1, generator())
        .inputs[0, -1, :4], torch.tensor(QUERY_OF_SEED_0))


@pytest.mark.parametrize(("fields", "split", "enough"), [
    ({"ood_fraction": 0.0}, "ood", {"ood_fraction": 0.02}),
    ({"ood_fraction": 0.01}, "ood", {}),
    ({"held_out": ()}, "ood", {}),
    ({"n_variables": 1, "unknown_fraction": 0.0, "ood_fraction": 0.0}, "ood", {}),
    ({"n_terms": 3, "unknown_fraction": 0.125}, "unknown", {"unknown_fraction": 0.1875}),
    ({"n_variables": 2, "n_terms": 3, "unknown_fraction": 0.0, "ood_fraction": 0.0}, "unknown", {}),
])
def test_an_absent_split_is_explained(
    fields: dict[str, Any], split: str, enough: dict[str, float]
) -> None:
    """The smallest fraction that would be enough is named, where there is one, and is."""
    task = FuzzyLogic(LogicConfig(**fields))
    assert split not in task.splits
    for ask in (task.combinations, lambda s: task.sample(s, 2, generator())):
        with pytest.raises(SplitError) as raised:
            ask(split)
        assert ", ".join(task.splits) in str(raised.value)
    for value in enough.values():
        assert f"{value}" in str(raised.value)
        assert len(FuzzyLogic(LogicConfig(**fields | enough)).combinations(split)) == 1
