"""Every source of a factorial differs from its instance in what its name says, and in that "
"alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_sraven import rules_that_hold
from torch import Tensor

import latentcode as lc
from latentcode.config import LogicConfig, SravenConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, UnknownNameError
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import OTHERS, ChosenPairs, MinimalPairs
from latentcode.tasks.logic.counterfactuals import LEAST_DIFFERENCE
from latentcode.tasks.logic.task import evaluate
from latentcode.tasks.sraven.counterfactuals import (
    feature_of,
    natural_pairs,
    operands_of,
    places_of,
)
from latentcode.tasks.sraven.task import (
    DISTRIBUTE,
    RULES,
    SUM,
    aligned,
    rules_shown,
)

N = 400
SRAVEN = {"permuted": SravenConfig(n_features=3), "not permuted": SravenConfig(
    n_features=3, permuted=False), "one feature of seven values": SravenConfig(
    n_features=1, n_values=7, ood_fraction=0.0), "larger grid": SravenConfig(
    n_features=2, grid_size=4)}
LOGIC = LogicConfig(ood_fraction=0.5, unknown_fraction=0.25)
SOURCES = {"sources": {"operation"}, "control": set[str](),
          **{name: set(name.split("+")) for name in OTHERS if name != "unrelated"}}
"""Source -> what is other than in its instance."""
SAME = ("bases", "sources", "operands", "operation+operands")
"""Whose answers the candidates are."""


def drawn(
    config: SravenConfig | LogicConfig, split: str | None = None, *, factorial: bool = True
) -> tuple[ChosenPairs, MinimalPairs]:
    task = lc.make_task(config)
    counterfactuals = lc.make_counterfactuals(task, factorial=factorial)
    split = split or ("ood" if "ood" in task.splits else "train")
    return counterfactuals, counterfactuals.sample(split, N, make_generator(0, "pairs"))


def sources_of(pairs: MinimalPairs) -> dict[str, set[str]]:
    """Return those of `SOURCES` that pairs have: minimal ones have two."""
    return {name: differs for name, differs in SOURCES.items()
            if name in ("sources", "control", *pairs.others)}


def answer(batch: Batch, slot: Tensor) -> Tensor:
    return batch.targets.gather(1, slot[:, None])[:, 0]


both_designs = pytest.mark.parametrize("factorial", [True, False], ids=["factorial", "minimal"])


@both_designs
@pytest.mark.parametrize("name", SRAVEN)
def test_sraven_sources_differ_in_what_their_name_says(name: str, factorial: bool) -> None:
    config = SRAVEN[name]
    _, pairs = drawn(config, factorial=factorial)
    pairs = pairs[pairs.counts]
    ours, slot = pairs.bases, pairs.slot
    here = F.one_hot(slot, config.n_features).bool()
    assert (pairs.base_label != pairs.source_label).all()
    for source, differs in sources_of(pairs).items():
        theirs = pairs.batch(source)
        rule = pairs.source_label if "operation" in differs else pairs.base_label
        assert torch.equal(rules_shown(theirs)[here], rule)
        assert ("operands" in differs) == bool(
            (operands_of(theirs, slot) != operands_of(ours, slot)).any(1).all())
        assert torch.equal(operands_of(ours, slot), operands_of(theirs, slot)) == (
            "operands" not in differs)
        mine, other = (b.info["grid"].scatter(3, places_of(b, slot), 0) for b in (ours, theirs))
        same_rules = torch.equal(rules_shown(ours)[~here], rules_shown(theirs)[~here])
        if config.n_features > 1:
            assert torch.equal(mine, other) == same_rules == ("rest" not in differs)
        # The first rows are always drawn anew.
        fresh = (feature_of(ours, slot) != feature_of(theirs, slot))[:, :-1].flatten(1).any(1)
        assert fresh.float().mean() > 0.97


@pytest.mark.parametrize("name", SRAVEN)
def test_every_row_obeys_its_rule_and_every_token_keeps_its_place(name: str) -> None:
    config = SRAVEN[name]
    _, every = drawn(config)
    pairs = every[every.counts]
    ours = pairs.bases
    # An instance that does not count is a problem of the task all the same.
    for source, batch in (("bases", every.bases), *(
            (name, pairs.batch(name)) for name in ("bases", "sources", "control",
                                                   *pairs.others))):
        if batch is not every.bases:
            assert torch.equal(batch.info["permutations"], ours.info["permutations"])
            assert torch.equal(batch.combination, ours.combination)
        features = aligned(batch.info["grid"], batch.info["permutations"]).movedim(-1, 1)
        held = rules_that_hold(features, config.n_values)
        assert held.gather(-1, rules_shown(batch)[..., None]).all(), source
        assert torch.equal(batch.targets, batch.info["grid"][:, -1, -1])
        # Inputs show what the grid says, with the answer hidden.
        shown = batch.inputs.unflatten(1, (config.grid_size**2, -1))
        assert torch.equal(shown[:, :-1].argmax(-1), batch.info["grid"].flatten(1, 2)[:, :-1])
        assert shown[:, -1].abs().max() == 0


@pytest.mark.parametrize("name", ["permuted", "not permuted", "larger grid"])
def test_the_rest_of_another_problem_makes_another_combination(name: str) -> None:
    _, pairs = drawn(SRAVEN[name])
    ours = rules_shown(pairs.bases).sort(-1).values
    for source in ("rest", "operation+rest", "operands+rest", "operation+operands+rest"):
        theirs = rules_shown(pairs.batch(source)).sort(-1).values
        assert (ours != theirs).any(-1).all(), source


def test_pairs_between_some_rules() -> None:
    config = SRAVEN["not permuted"]
    factorial, _ = drawn(config)
    assert factorial.unrestricted is factorial
    some = factorial.between(base_labels=("sum",), source_labels=("constant", "difference"))
    pairs = some.sample("ood", N, make_generator(0, "pairs"))
    assert pairs.counts.sum() > 0.8 * N
    pairs = pairs[pairs.counts]
    assert {RULES[rule] for rule in pairs.base_label} == {"sum"}
    assert {RULES[rule] for rule in pairs.source_label} == {"constant", "difference"}
    assert not some.unrestricted.factorial  # means are over any problems, as the task draws them
    with pytest.raises(ConfigError, match="no natural source has a rule of"):
        factorial.between(("constant",), ("difference",))


@pytest.mark.parametrize("config", [SRAVEN["permuted"], LOGIC])
def test_places_share_out_the_tokens(config: SravenConfig | LogicConfig) -> None:
    factorial, pairs = drawn(config)
    held = torch.stack([factorial.place(name, pairs) for name in factorial.places])
    assert (held.sum(0) == 1).all()
    for name in factorial.places:
        tokens = factorial.place(name, pairs)
        at, outside, within = (factorial.scope(how.format(name), pairs)
                               for how in ("{}", "outside {}", "within {}"))
        assert torch.equal(at, tokens[:, :, None].expand_as(at))
        assert torch.equal(outside, ~at)
        assert torch.equal(within, at & at.mT)
    for name, ask in (("outside grid", factorial.scope), ("grid", factorial.place)):
        with pytest.raises(UnknownNameError, match=name):
            ask(name, pairs)


@pytest.mark.parametrize("name", SRAVEN)
def test_sraven_candidates_are_four_answers(name: str) -> None:
    _, pairs = drawn(SRAVEN[name])
    targets = torch.stack([answer(pairs.batch(n), pairs.slot) for n in SAME], 1).double()
    counted, pairs = pairs.counts, pairs[pairs.counts]
    assert torch.equal(pairs.candidates, targets[counted])
    assert all(len(set(row)) == 4 for row in pairs.candidates.tolist())
    # A third rule, which has natural rows too.
    rule = answer(replace(pairs.others["unrelated"], targets=rules_shown(
        pairs.others["unrelated"])), pairs.slot)
    assert ((rule != pairs.base_label) & (rule != pairs.source_label) & (rule != DISTRIBUTE)).all()


def test_sraven_pairs_are_those_with_natural_rows() -> None:
    _, pairs = drawn(SRAVEN["one feature of seven values"])
    assert torch.equal(pairs.counts, pairs.base_label != DISTRIBUTE)  # for which there is no pair
    base_label, target = pairs[pairs.counts].base_label, pairs[pairs.counts].source_label
    seen = torch.zeros(8, 8, dtype=torch.bool).index_put((base_label, target), torch.tensor(True))
    assert torch.equal(seen, natural_pairs())
    # Every rule comes up as often as any other, and so do those that sum is changed to.
    assert (torch.bincount(base_label, minlength=7) / len(base_label)).min() > 0.1  # 1 / 7
    others = target[base_label == SUM]
    assert (torch.bincount(others, minlength=7)[:SUM] / len(others)).min() > 0.05  # 1 / 6


@pytest.mark.parametrize("config", [SRAVEN["permuted"], SRAVEN["not permuted"], LOGIC])
def test_pairs_of_chosen_constituents(config: LogicConfig | SravenConfig) -> None:
    factorial, some = drawn(config)
    batch = some.bases[:200]
    held = factorial.held(batch)
    which = torch.arange(200) % held.shape[1]
    choices = factorial.choices(batch, which)
    order = torch.rand(choices.shape, generator=make_generator(0, "targets"))
    target = torch.where(choices, order, -1.0).argmax(1)
    pairs = factorial.with_target(batch, which, target, make_generator(1, "chosen"))
    assert torch.equal(pairs.base_label, held.gather(1, which[:, None])[:, 0])
    assert torch.equal(pairs.source_label, target)
    assert pairs.bases is batch
    member = factorial.membership(pairs.sources)[torch.arange(200), pairs.slot]
    assert member.gather(1, target[:, None]).all()
    assert not member.gather(1, pairs.base_label[:, None]).any()
    # What each constituent answers: the instance's own, and where it counts the source's.
    answers = factorial.answers(pairs)
    symbols = which[:, None] if factorial.symbolic else torch.zeros(200, 1).long()
    for constituent, whose in ((pairs.base_label, batch), (pairs.source_label, pairs.sources)):
        right = whose.targets.gather(1, symbols)[:, 0].double()
        given = answers.gather(1, constituent[:, None])[:, 0]
        known = pairs.counts if whose is pairs.sources else torch.ones_like(pairs.counts)
        torch.testing.assert_close(given[known], right[known], atol=1e-6, rtol=0)
    assert pairs.counts.float().mean() > 0.2
    assert set(pairs.others) >= set(OTHERS)
    expected = torch.stack([answer(pairs.batch(n), pairs.slot) for n in SAME], 1).double()
    unknown = torch.zeros(200, dtype=torch.bool)
    if isinstance(config, SravenConfig):
        unknown = (pairs.base_label == DISTRIBUTE) | (pairs.source_label == DISTRIBUTE)
        assert unknown.any()
    assert torch.equal(pairs.candidates.isnan().all(1), unknown)
    assert torch.equal(pairs.candidates[~unknown], expected[~unknown])


@both_designs
@pytest.mark.parametrize("split", ["train", "ood", "unknown"])
def test_logic_sources_differ_in_what_their_name_says(split: str, factorial: bool) -> None:
    _, pairs = drawn(LOGIC, split, factorial=factorial)
    ours = pairs.bases
    known = pairs.source_label < LOGIC.n_known_terms
    assert (known.all() if split != "unknown" else not known.any())
    terms = ours.info["terms"]
    changed = torch.where(terms == pairs.base_label[:, None], pairs.source_label[:, None], terms)
    signs = lc.make_task(LOGIC).signs
    for source, differs in sources_of(pairs).items():
        theirs = pairs.batch(source)
        assert torch.equal(theirs.info["terms"],
                           changed if "operation" in differs else ours.info["terms"])
        fresh = (theirs.inputs[..., :-1] != ours.inputs[..., :-1]).any(-1)  # [B, T]
        # The control has other examples, as those of another context.
        of_examples = "rest" in differs or source == "control"
        assert fresh[:, :-1].all() if of_examples else not fresh[:, :-1].any()
        assert fresh[:, -1].all() if "operands" in differs else not fresh[:, -1].any()
        values = evaluate(signs[theirs.info["terms"]], theirs.inputs[..., :-1])
        assert torch.equal(theirs.inputs[:, :-1, -1], values[:, :-1])
        assert torch.equal(theirs.targets, values[:, -1:])
        assert theirs.inputs[:, -1, -1].abs().max() == 0  # the query's is hidden
        assert torch.equal(theirs.combination, ours.combination)


@pytest.mark.parametrize("split", ["train", "ood", "unknown"])
def test_logic_candidates_are_four_answers(split: str) -> None:
    _, pairs = drawn(LOGIC, split)
    assert torch.equal(pairs.candidates, torch.cat(
        [pairs.batch(name).targets for name in SAME], 1).double())
    least = (pairs.candidates[:, :, None] - pairs.candidates[:, None]).abs()
    least = (least + torch.eye(4)).amin((1, 2))
    assert torch.equal(pairs.counts, least > LEAST_DIFFERENCE)
    assert pairs.counts.float().mean() > 0.4


def test_an_unrelated_function_shares_no_term_where_there_are_enough() -> None:
    for split, at_most in (("train", 0), ("ood", 0), ("unknown", 1)):  # of four unknown terms
        _, pairs = drawn(LOGIC, split)
        taken = torch.cat([pairs.bases.info["terms"], pairs.source_label[:, None]], 1)[:, None]
        theirs = pairs.others["unrelated"]
        shared = (theirs.info["terms"][..., None] == taken).any(-1).sum(1)
        assert (shared <= at_most).float().mean() > 0.98
        assert (theirs.inputs != pairs.bases.inputs).any(-1).all()


def test_permuted_values_are_those_of_other_examples() -> None:
    _, pairs = drawn(LOGIC)
    ours, theirs = pairs.bases.inputs, pairs.others["permuted"].inputs
    assert torch.equal(theirs[..., :-1], ours[..., :-1])
    assert torch.equal(theirs[:, -1], ours[:, -1])
    assert torch.equal(theirs[:, :-1, -1].sort(1).values, ours[:, :-1, -1].sort(1).values)
    assert (theirs[:, :-1, -1] != ours[:, :-1, -1]).float().mean() > 0.9
    assert torch.equal(pairs.others["permuted"].targets, pairs.bases.targets)


@pytest.mark.parametrize("inputs", ["fixed_context", "fixed_query"])
def test_fixed_inputs_have_no_factorial(inputs: str) -> None:
    factorial, pairs = drawn(replace(LOGIC, inputs=inputs))  # type: ignore[arg-type]
    assert not factorial.factorial
    assert (dict(pairs.others), pairs.candidates) == ({}, None)
    assert "no sources with other operands" in factorial.lacking["factorial"]
    assert "permuted" in factorial.lacking
