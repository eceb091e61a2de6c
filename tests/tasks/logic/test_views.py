"""Do pairs, labels and renderings of fuzzy-logic instances say what the instances are?"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_logic import generator, slow_function

from latentcode.config import LogicConfig
from latentcode.tasks.logic.task import FuzzyLogic

property_test = settings(max_examples=60)


def read_symbols(function: str) -> np.ndarray:
    """Read "(x1 ∧ ¬x2) ∨ ..." back into signs [K, L]."""
    terms = [term.strip("() ").split(" ∧ ") for term in function.split(" ∨ ")]
    for term in terms:
        assert [literal.lstrip("¬") for literal in term] == [
            f"x{v + 1}" for v in range(len(term))]
    return np.array([[not literal.startswith("¬") for literal in term] for term in terms])


# --- Pairs ----------------------------------------------------------------------------------------


def test_pairs_and_their_positions() -> None:
    task = FuzzyLogic(LogicConfig(n_examples=5))
    assert list(task.pairs) == ["query->query", *(f"query->example.{i}" for i in range(4))]
    assert all(pair.name == name and pair.token is None for name, pair in task.pairs.items())
    batch = task.sample("train", 3, generator())
    query, key = task.positions(["query->example.2", "query->query", "query->example.0"], batch)
    assert query.dtype == key.dtype == torch.int64
    assert query.tolist() == [[4, 4, 4]] * 3
    assert key.tolist() == [[2, 4, 0]] * 3


# --- Labels ---------------------------------------------------------------------------------------


@property_test
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 1000))
def test_labels_say_what_the_instance_is(n_variables: int, n_terms: int, seed: int) -> None:
    config = LogicConfig(n_variables=n_variables, n_terms=n_terms,
                         ood_fraction=0.3 if n_terms > 1 else 0.0)
    task = FuzzyLogic(config)
    for split in task.splits:
        batch = task.sample(split, 5, generator(seed))
        labels = task.labels(batch)
        assert len(labels) == 5
        assert set(labels["split"]) == {split}
        for b, row in enumerate(labels.to_dict("records")):
            terms = batch.info["terms"][b].tolist()
            signs = read_symbols(row["function"])
            np.testing.assert_array_equal(signs, task.signs[terms].numpy())
            names = [row[f"term_{k + 1}"] for k in range(config.n_terms)]
            assert names == [task.term_symbols(t) for t in terms]
            assert row["function"] == " ∨ ".join(f"({name})" for name in names)
            assert row["combination"] == " ∨ ".join(map(str, terms))
            query = np.array([row[f"query_x{v + 1}"] for v in range(config.n_variables)])
            np.testing.assert_array_equal(query, batch.inputs[b, -1, :-1].numpy())
            target = slow_function(signs, query.astype(np.float32))
            assert row["target"] == target == batch.targets[b, 0]

            active = signs[row["active_term"] - 1]
            assert slow_function(active[None], query.astype(np.float32)) == target
            v = row["active_variable"] - 1
            needed = np.float32(query[v]) if active[v] else np.float32(1) - np.float32(query[v])
            assert needed == target


def test_a_combination_has_one_label_in_every_split() -> None:
    held_out = FuzzyLogic(LogicConfig(held_out=((0, 1), (2, 3))))
    trained = FuzzyLogic(LogicConfig(ood_fraction=0.0))
    ood = set(held_out.labels(held_out.sample("ood", 50, generator())).combination)
    assert ood == {"0 ∨ 1", "2 ∨ 3"}
    every = trained.labels(trained.sample("test", 2000, generator()))
    assert ood < set(every.combination)
    assert (every.groupby("combination")["function"].nunique() == 1).all()
    assert every.combination.nunique() == every.function.nunique() == 66


def test_probes_read_one_shared_context() -> None:
    task = FuzzyLogic(LogicConfig(n_terms=3, split_seed=4))
    assert task.probe_config == replace(task.config, inputs="fixed_context")
    assert task.probe_labels == ("term_1", "term_2", "term_3", "terms")
    labels = task.labels(task.sample("train", 2, generator()))
    assert set(task.probe_labels) - {"terms"} <= set(labels.columns)


# --- Rendering ------------------------------------------------------------------------------------


def test_text_and_html_show_function_examples_query_and_answer() -> None:
    task = FuzzyLogic(LogicConfig(n_variables=3, n_examples=4))
    batch = task.sample("ood", 3, generator())
    for i in range(3):
        label, text = task.labels(batch).iloc[i], task.render(batch, i)
        page = ElementTree.fromstring(task.render(batch, i, "html"))
        for shown in (text, " ".join(page.itertext())):
            assert label.function in shown
            assert f"answer: f(query) = {batch.targets[i, 0]:.4f}" in shown
            assert f"x{label.active_variable}, from term {label.active_term}: " in shown
    foreign = task.render(replace(batch, split="<b>&"), 1, "html")
    assert "split &lt;b&gt;&amp;" in foreign
