"""A factorial of sources tells what codes carry: the operation, the operands or the answer.

In each hand-built model the codes of one layer carry one of them, by construction.
"""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hand_built import MODELS
from selector import K, Selector, symbol_of
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.metrics import CLASSES
from latentcode.models.patched.sites import capture
from latentcode.probes.interventions import InterventionResult, Patch, intervene_model
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs

LEAST = 0.10
"""The smallest mean difference from every control by which something is carried."""
N = 400
BOTH = "operation+operands"
LAYER = {"operation": 0, "operands": 1, "answer": 1}
"""Model -> the layer whose codes carry that."""
CODE = {"operation": {"operation"}, "operands": {"operands"}, "answer": {"operation", "operands"}}
VALUE = {"operation": {"operands"}, "operands": {"operation"}, "answer": set[str]()}
"""Model -> what its codes and its values bring of a source."""


@cache
def rates(name: str, *interventions: Patch) -> pd.DataFrame:
    """Return the rates of the classes, a row per intervention."""
    table = result(name, *interventions).table
    rows = table[table["metric"].isin(CLASSES)]
    values = rows["value"].to_numpy().reshape(len(interventions), len(CLASSES))
    return pd.DataFrame(values, columns=list(CLASSES))


@cache
def result(name: str, *interventions: Patch) -> InterventionResult:
    found = intervene_model(MODELS[name](), Selector(), interventions, n=N, split="train",
                            n_bootstrap=200)
    assert found.settings["n_known"] == N  # the model is never wrong
    return found


def rows_of(name: str) -> tuple[Patch, ...]:
    """Return the writes of every source's row."""
    return tuple(Patch(patch, "row", (LAYER[name],)) for patch in ("interchange", *OTHERS))


def brought(parts: set[str]) -> str:
    """Return the class of an answer that has these parts of the source."""
    return ("base", "operation", "operands", "answer")[
        ("operation" in parts) + 2 * ("operands" in parts)]


@pytest.mark.parametrize("name", MODELS)
def test_the_codes_are_what_the_model_is_called(name: str) -> None:
    instances = Selector().sample("train", 50, torch.Generator().manual_seed(0)).bases
    place = ("code", LAYER[name])
    code = capture(MODELS[name](), instances.inputs, [place])[1][place][:, :, 1:]  # [B, H, 2, T]
    symbol = symbol_of(instances)[:, None].expand(-1, 2)
    holds = {"operation": instances.info["rules"], "operands": symbol,
             "answer": instances.targets}[name]
    keys = torch.tensor([1, 2] if name == "operands" else [0, 0])
    expected = torch.einsum("bqh,qk->bhqk", F.one_hot(holds, K), F.one_hot(keys, 3))
    torch.testing.assert_close(code, expected.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_brings_what_its_codes_carry_and_nothing_else(name: str) -> None:
    luck = 1 / (K - 2)
    for i, (_, found) in zip(rows_of(name), rates(name, *rows_of(name)).iterrows(), strict=True):
        differs = {"operation"} if i.value == "interchange" else set(i.value.split("+"))
        if i.value == "unrelated":
            # Whatever it brings, one of K - 2, is an answer of the four by luck at most: the null.
            assert found.drop("else").max() < luck + 4 * (luck * (1 - luck) / N) ** 0.5
        else:
            assert found[brought(differs & CODE[name])] == 1.0, i.value


@pytest.mark.parametrize("name", MODELS)
def test_codes_and_values_together_copy_the_answer(name: str) -> None:
    every = tuple(range(LAYER[name] + 1))
    expected = {"code": CODE[name], "value": VALUE[name], "code+value": {"operation", "operands"}}
    for layers in dict.fromkeys(((LAYER[name],), every)):
        found = rates(name, *(Patch(BOTH, "everything", layers, site=s) for s in expected))
        for (_, row), (site, parts) in zip(found.iterrows(), expected.items(), strict=True):
            # Earlier values bring the symbol to the codes of layer 1, or to what they hold.
            if site != "value" or len(layers) == 1:
                assert row[brought(parts)] == 1.0, (site, layers)


def test_codes_below_the_answer_are_the_operation() -> None:
    found = rates("answer", Patch(BOTH, "row", (0,)), Patch(BOTH, "row", (0, 1)))
    assert found["operation"].tolist() == [1.0, 0.0]
    assert found["answer"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", MODELS)
def test_each_meets_its_criterion_alone(name: str) -> None:
    contrasts = result(name, *rows_of(name)).contrasts.table
    met = []
    for outcome, controls in {"operation": ("operands", "unrelated"),
                              "operands": ("interchange", "unrelated"),
                              "answer": ("interchange", "operands", "unrelated")}.items():
        asked = contrasts[(contrasts["patch"] == BOTH) & (contrasts["class"] == outcome)
                          & contrasts["against"].isin(controls)]
        assert asked["against"].nunique() == len(controls)
        if (asked["low"] > 0).all() and (asked["value"] >= LEAST).all():
            met.append(outcome)
    assert met == [name]


class NeverZero(Selector):
    """Problems in which a symbol or a rule is 0 are answered wrongly."""

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        batch = pairs.batch(of)
        return (symbol_of(batch) > 0) & (batch.info["rules"] > 0).all(1)


def test_what_counts_is_answered_rightly_sources_included() -> None:
    writes = ("interchange", "rest", "unrelated")
    found = intervene_model(MODELS["operation"](), NeverZero(), [
        Patch(patch, "row", (0,)) for patch in writes], n=200, batch_size=200)
    pairs = NeverZero().sample("ood", 200, make_generator(0, "interventions ood"))
    right = {name: NeverZero().right(pairs, torch.empty(0), name) for name in (
        "bases", "sources", "operands", BOTH, "rest")}
    known = right["bases"] & right["sources"] & right["operands"] & right[BOTH]
    assert found.settings["n_known"] == int(known.sum())
    n = found.table.groupby("patch")["n"].first()
    assert n["interchange"] == n["unrelated"] == int(known.sum())
    assert n["rest"] == int((known & right["rest"]).sum()) < n["interchange"]
