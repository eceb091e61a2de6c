"""Minimal pairs share everything but one constituent, and the answers are those of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import latentcode as lc
from latentcode.config import LogicConfig, SravenConfig
from latentcode.devices import make_generator
from latentcode.tasks.logic.counterfactuals import LEAST_DIFFERENCE
from latentcode.tasks.sraven.task import DISTRIBUTE, RULES, STEPS, aligned, complete

N = 3_000


def drawn(config: SravenConfig | LogicConfig, split: str = "ood", seed: int = 0):  # type: ignore[no-untyped-def]
    task = lc.make_task(config)
    pairs = lc.make_counterfactuals(task, factorial=False)
    return task, pairs.sample(split, N, make_generator(seed, "pairs"))


@pytest.mark.parametrize("permuted", [False, True])
def test_sraven_sources_obey_another_rule_above_the_same_last_row(permuted: bool) -> None:
    _, pairs = drawn(SravenConfig(n_features=3, permuted=permuted))
    source = pairs.sources
    here = torch.nn.functional.one_hot(pairs.slot, 3).bool()[:, None, None]
    feature = aligned(source.info["grid"], source.info["permutations"]).masked_select(here)
    feature = feature.view(-1, 3, 3)
    answer, (a, b) = feature[:, -1, -1], feature[:, -1, :-1].unbind(1)
    third = feature[:, 0].sum(1) - a - b  # the symbol of the first row that the last one lacks
    # Where its answer is known and another than the instance's, a pair counts.
    known = (pairs.source_label != DISTRIBUTE) | (a != b)
    for rule, expected in enumerate([b + step for step in STEPS] + [a + b, a - b, third]):
        mine = (pairs.source_label == rule) & known
        fits, _ = complete(feature[mine][:, [0, 1, 1]], 8)
        assert fits[:, rule].all(), RULES[rule]
        assert torch.equal(answer[mine], expected[mine] % 8), RULES[rule]
    assert torch.equal(source.targets.gather(1, pairs.slot[:, None])[:, 0], answer)
    differ = (source.targets != pairs.bases.targets).any(1)
    assert torch.equal(pairs.counts, differ & known)
    # Inputs show what the grid says, with the answer hidden.
    shown = source.inputs.view(N, 9, 3, 8)
    assert shown[:, -1].abs().max() == 0
    assert torch.equal(shown[:, :-1].argmax(-1), source.info["grid"].flatten(1, 2)[:, :-1])


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


def test_logic_outcomes_of_known_answers() -> None:
    task, pairs = drawn(LogicConfig(ood_fraction=0.5))
    far = (pairs.bases.targets - pairs.sources.targets).abs()[:, 0] >= LEAST_DIFFERENCE
    assert torch.equal(pairs.counts, far)
    assert 0.05 < far.float().mean() < 0.95
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
