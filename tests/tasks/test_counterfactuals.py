"""Minimal pairs share everything but one constituent, and the answers are those of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import latentcode as lc
from latentcode.config import LogicConfig, SravenConfig
from latentcode.seeds import make_generator
from latentcode.tasks.logic.counterfactuals import LEAST_DIFFERENCE
from latentcode.tasks.sraven.rules import DISTRIBUTE, RULES, STEPS, complete
from latentcode.tasks.sraven.task import aligned

N = 3_000


def drawn(config: SravenConfig | LogicConfig, split: str = "ood", seed: int = 0):  # type: ignore[no-untyped-def]
    task = lc.make_task(config)
    pairs = lc.make_counterfactuals(task, factorial=False)
    return task, pairs.sample(split, N, make_generator(seed, "pairs"))


@pytest.mark.parametrize("permuted", [False, True])
def test_sraven_sources_differ_in_the_first_rows_of_one_feature(permuted: bool) -> None:
    config = SravenConfig(n_features=3, permuted=permuted)
    _, pairs = drawn(config)
    ours, theirs, same = (aligned(b.info["grid"], b.info["permutations"])
                          for b in (pairs.bases, pairs.sources, pairs.control))  # [B, G, G, M]
    here = torch.nn.functional.one_hot(pairs.slot, 3).bool()[:, None, None]
    for source in (theirs, same):
        changed = source != ours
        assert not (changed & ~here).any()  # the other features
        assert not changed[:, -1, :-1].any()  # the last row
        assert changed[:, :-1].flatten(1).any(1).float().mean() > 0.97
    assert torch.equal(same[:, -1, -1], ours[:, -1, -1])  # the same rule gives the same answer
    # The source's first rows obey its rule, and its answer is that rule's.
    feature = theirs.masked_select(here).view(-1, 3, 3)
    context = feature[:, -1, :-1]
    a, b = context.unbind(1)
    answer = feature[:, -1, -1]
    for rule, name in enumerate(RULES):
        mine = (pairs.source_label == rule) & ((rule != DISTRIBUTE) | (a != b))
        rows = feature[mine]
        fits, _ = complete(torch.cat([rows[:, :2], rows[:, 1:2]], 1), 8)
        assert fits[:, rule].all(), name
        expected = (b + STEPS[rule] if rule < len(STEPS) else a + b if name == "sum"
                    else a - b if name == "difference" else rows_third(feature, context))
        expected = expected if len(expected) == int(mine.sum()) else expected[mine]
        assert torch.equal(answer[mine], expected % 8), name
    assert torch.equal(pairs.sources.targets.gather(1, pairs.slot[:, None])[:, 0], answer)
    # What counts: an answer that is known and another than the instance's.
    differ = (pairs.sources.targets != pairs.bases.targets).any(1)
    assert torch.equal(pairs.counts, differ & ((pairs.source_label != DISTRIBUTE) | (a != b)))
    assert (pairs.base_label != pairs.source_label).all()
    # Inputs show what the grid says, with the answer hidden.
    shown = pairs.sources.inputs.view(N, 3, 3, 3, 8)
    assert shown[:, -1, -1].abs().max() == 0
    panels = pairs.sources.info["grid"].flatten(1, 2)[:, :-1]
    assert torch.equal(shown.flatten(1, 2)[:, :-1].argmax(-1), panels)


def rows_third(feature: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """The symbol of the first row that the context lacks."""
    return feature[:, 0].sum(1) - context.sum(1)


def test_sraven_rules_and_labels_follow() -> None:
    task, pairs = drawn(SravenConfig(n_features=3))
    slots = pairs.slot.tolist()
    ours, theirs = task.labels(pairs.bases), task.labels(pairs.sources)
    for i in range(50):
        for token in range(3):
            changed = ours[f"rule_{token}"][i] != theirs[f"rule_{token}"][i]
            assert changed == (token == slots[i])
        assert ours[f"rule_{slots[i]}"][i] == RULES[int(pairs.base_label[i])]
        assert theirs[f"rule_{slots[i]}"][i] == RULES[int(pairs.source_label[i])]
        member = lc.make_counterfactuals(task).membership(pairs.sources)[i, slots[i]]
        assert member.nonzero().flatten().tolist() == [int(pairs.source_label[i])]
    share = torch.bincount(pairs.source_label, minlength=8) / N
    assert share.min() > 0.08


def test_sraven_outcomes_of_known_logits() -> None:
    task, pairs = drawn(SravenConfig(n_features=3, permuted=False))
    pairs = pairs[pairs.counts]
    n_tokens = pairs.bases.inputs.shape[1]

    def logits(targets: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(targets), n_tokens, 8)
        out[:, -3:] = 10.0 * torch.nn.functional.one_hot(targets, 8).float()
        return out

    clean, source = logits(pairs.bases.targets), logits(pairs.sources.targets)
    counterfactuals = lc.make_counterfactuals(task)
    assert counterfactuals.right(pairs, clean, "bases").all()
    assert counterfactuals.right(pairs, clean, "control").all()
    assert counterfactuals.right(pairs, source, "sources").all()
    assert not counterfactuals.right(pairs, source, "bases").any()
    stays = counterfactuals.outcomes(pairs, clean, source, clean)
    flips = counterfactuals.outcomes(pairs, clean, source, source)
    for name, unchanged, changed in (("flip", 0, 1), ("unchanged", 1, 0), ("others", 1, 1)):
        assert (stays[name] == unchanged).all()
        assert (flips[name] == changed).all()
    assert stays["kl"].max() < 1e-6 < 5.0 < flips["kl"].min()
    assert flips["kl_others"].max() < 1e-6
    assert flips["p_source_answer"].min() > 0.99
    wrong = source.clone()
    wrong[:, -3:] = wrong[:, -3:].roll(1, -1)
    assert (counterfactuals.outcomes(pairs, clean, source, wrong)["others"] == 0).all()


@pytest.mark.parametrize("permuted", [False, True])
def test_sraven_scopes(permuted: bool) -> None:
    task, pairs = drawn(SravenConfig(n_features=3, permuted=permuted))
    pairs = pairs[:40]
    counterfactuals = lc.make_counterfactuals(task)
    masks = {name: counterfactuals.scope(name, pairs) for name in counterfactuals.scopes}
    sizes = {"pair": 1, "pairs": 3, "row": 27, "feature": 9 * 27, "everything": 27 * 27}
    previous = None
    for name, size in sizes.items():
        assert (masks[name].sum((1, 2)) == size).all()
        if previous is not None:
            assert (masks[name] | ~previous).all()  # each holds the smaller ones
        previous = masks[name]
    # The pairs are those that the task names.
    for slot in range(3):
        mine = pairs[pairs.slot == slot]
        names = [f"response.{slot}->response.{slot}",
                 *(f"response.{slot}->row3.panel{p}.same" for p in (1, 2))]
        query, key = task.positions(names, mine.bases)
        batch = torch.arange(len(mine))[:, None].expand_as(query)
        expected = torch.zeros(len(mine), 27, 27, dtype=torch.bool)
        expected[batch, query, key] = True
        assert torch.equal(counterfactuals.scope("pairs", mine), expected)


@pytest.mark.parametrize("split", ["train", "ood", "unknown"])
def test_logic_sources_differ_in_one_term(split: str) -> None:
    config = LogicConfig(ood_fraction=0.5, unknown_fraction=0.25)
    task, pairs = drawn(config, split)
    ours, theirs, same = pairs.bases, pairs.sources, pairs.control
    assert torch.equal(ours.inputs[..., :-1], theirs.inputs[..., :-1])
    assert torch.equal(ours.inputs[:, -1], same.inputs[:, -1])  # the query
    assert torch.equal(ours.targets, same.targets)
    assert (ours.inputs[:, :-1] != same.inputs[:, :-1]).any(-1).all()
    members = [lc.make_counterfactuals(task).membership(b)[:, 0] for b in (ours, theirs)]
    assert (members[0] != members[1]).sum(1).eq(2).all()
    assert members[0].gather(1, pairs.base_label[:, None]).all()
    assert not members[1].gather(1, pairs.base_label[:, None]).any()
    assert members[1].gather(1, pairs.source_label[:, None]).all()
    known = pairs.source_label < config.n_known_terms
    assert (known.all() if split != "unknown" else not known.any())
    far = (ours.targets - theirs.targets).abs()[:, 0] >= LEAST_DIFFERENCE
    assert torch.equal(pairs.counts, far)
    assert 0.05 < pairs.counts.float().mean() < 0.95


def test_logic_outcomes_of_known_answers() -> None:
    task, pairs = drawn(LogicConfig(ood_fraction=0.5))
    pairs = pairs[pairs.counts]
    ours, theirs = pairs.bases.targets, pairs.sources.targets

    def logits(answer: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(answer, (31, 0))[..., None]

    clean, source = logits(ours), logits(theirs)
    counterfactuals = lc.make_counterfactuals(task)
    assert counterfactuals.right(pairs, clean, "bases").all()
    assert counterfactuals.right(pairs, clean, "control").all()
    assert counterfactuals.right(pairs, source, "sources").all()
    assert not counterfactuals.right(pairs, clean, "sources").any()
    quarter = counterfactuals.outcomes(pairs, clean, source, logits(ours + (theirs - ours) / 4))
    torch.testing.assert_close(quarter["moved"], torch.full_like(quarter["moved"], 0.25),
                               atol=1e-4, rtol=0)
    assert (quarter["flip"] == 0).all()
    assert (quarter["unchanged"] == 1).all()
    torch.testing.assert_close(quarter["error_base_answer"], ((theirs - ours) / 4).square()[:, 0])
    torch.testing.assert_close(quarter["error_source_answer"],
                               (3 * (theirs - ours) / 4).square()[:, 0])
    assert (counterfactuals.outcomes(pairs, clean, source, source)["flip"] == 1).all()


@pytest.mark.parametrize("config", [LogicConfig(), SravenConfig(n_features=3)])
def test_another_position_is_another_position(config: LogicConfig | SravenConfig) -> None:
    task, pairs = drawn(config)
    counterfactuals = lc.make_counterfactuals(task)
    for name in counterfactuals.scopes:
        if name not in ("examples", "everything"):
            here, elsewhere = (counterfactuals.scope(name, pairs[:20], elsewhere=there)
                               for there in (False, True))
            assert (here.sum((1, 2)) == elsewhere.sum((1, 2))).all()
            assert not (here & elsewhere).any()


@pytest.mark.parametrize("config", [
    LogicConfig(ood_fraction=0.5), SravenConfig(n_features=3),
    SravenConfig(n_features=3, permuted=False)])
def test_pairs_of_chosen_constituents(config: LogicConfig | SravenConfig) -> None:
    task, drawn_pairs = drawn(config)
    counterfactuals = lc.make_counterfactuals(task)
    batch = drawn_pairs.bases[:200]
    held = counterfactuals.held(batch)
    which = torch.arange(200) % held.shape[1]
    choices = counterfactuals.choices(batch, which)
    target = torch.where(choices, torch.rand(choices.shape), -1.0).argmax(1)
    pairs = counterfactuals.with_target(batch, which, target, make_generator(1, "chosen"))
    assert torch.equal(pairs.base_label, held.gather(1, which[:, None])[:, 0])
    assert torch.equal(pairs.source_label, target)
    assert pairs.bases is batch
    member = counterfactuals.membership(pairs.sources)[torch.arange(200), pairs.slot]
    assert member.gather(1, target[:, None]).all()
    assert not member.gather(1, pairs.base_label[:, None]).any()
    # What each constituent answers: the instance's own, and where it counts the source's.
    answers = counterfactuals.answers(pairs)
    symbols = which[:, None] if counterfactuals.symbolic else torch.zeros(200, 1).long()
    for constituent, whose in ((pairs.base_label, batch), (pairs.source_label, pairs.sources)):
        right = whose.targets.gather(1, symbols)[:, 0].double()
        given = answers.gather(1, constituent[:, None])[:, 0]
        known = pairs.counts if whose is pairs.sources else torch.ones_like(pairs.counts)
        torch.testing.assert_close(given[known], right[known], atol=1e-6, rtol=0)
    assert pairs.counts.float().mean() > 0.2


def test_outputs_are_those_of_the_response() -> None:
    counterfactuals = lc.make_counterfactuals(lc.make_task(SravenConfig(n_features=3)))
    slot = torch.tensor([0, 1, 2, 1])
    pairs = replace(counterfactuals.sample("train", 4, make_generator(0, "t")), slot=slot)
    logits = torch.zeros(4, 27, 8)
    logits[torch.arange(4), [24, 25, 26, 25], [1, 2, 3, 4]] = 50.0
    outputs = counterfactuals.outputs(counterfactuals.answer_token(pairs), logits)
    assert outputs.argmax(1).tolist() == [1, 2, 3, 4]
    torch.testing.assert_close(outputs.sum(1), torch.ones(4, dtype=torch.float64))
    logic = lc.make_counterfactuals(lc.make_task(LogicConfig()))
    values = torch.arange(6.0).view(2, 3, 1)
    token = logic.answer_token(logic.sample("train", 2, make_generator(0, "t")))
    assert logic.outputs(token, values).tolist() == [[2.0], [5.0]]
