"""On one instance: the source flips what it must, controls do not, and own codes do nothing."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from asked import asked, changed, untrained_bench
from hand_built import operation_model
from selector import K, Selector

from latentcode.errors import ConfigError, ProbeError, TooFewCountError, UnknownNameError
from latentcode.probes.interventions import Bench, ByHand
from latentcode.probes.interventions.bench import DRAWS
from latentcode.probes.interventions.intervention import check_means
from latentcode.probes.interventions.outcomes import Ask
from latentcode.probes.interventions.patches import Problem, References
from latentcode.tasks.sraven.counterfactuals import operands_of

N = 60


@pytest.fixture(scope="module")
def selector() -> Bench:
    pairs = Selector().sample("train", N, torch.Generator().manual_seed(0))
    return Bench(operation_model(), Selector(), pairs.bases, n_reference=300)


of_task = cache(untrained_bench)


def ask_of(bench: Bench, instance: int, **settings: object) -> Ask:
    which = int(str(settings.get("which", 0)))
    return changed(asked(instance, bench.targets(instance, which)[1]), **settings)


@pytest.mark.parametrize("where", ["pair", "row"])
@pytest.mark.parametrize("value", ["interchange", "class_mean"])
def test_what_the_target_generates_is_its_answer(selector: Bench, value: str, where: str) -> None:
    for instance in range(6):
        which = instance % 2
        for target in selector.targets(instance, which)[::3]:
            out = selector.outcome(asked(instance, target, which, value, where, (0,)))
            symbol = int(selector.batch.inputs[instance, 0].argmax())
            assert out.target_answer == (symbol + int(target)) % K
            assert out.answer_after == out.target_answer != out.answer_before == out.truth
            assert out.classes == ["operation"]
            assert (out.counts, out.source_right, out.source_answer) == (
                True, True, out.target_answer)
            assert f"{target}'s answer" in out.sentence()
            assert (out.drawn("control")["base"], out.drawn("identity")["base"]) == (DRAWS, 1)
            assert out.exact
            # Unrelated instances have a rule of their own: never as many as their sources keep.
            assert out.drawn("unrelated")["base"] < DRAWS
            assert out.caveats() == []


def test_controls_over_many_instances_switch_by_chance(selector: Bench) -> None:
    outcomes = [selector.outcome(ask_of(selector, i, where="pair")) for i in range(N // 2)]
    flipped = {name: np.mean([o.drawn(name)["operation"] / DRAWS for o in outcomes])
               for name in ("unrelated", "random", "control")}
    n = N // 2 * DRAWS
    bound = 1 / K + 4 * (1 / K * (1 - 1 / K) / n) ** 0.5
    assert flipped["control"] == 0.0
    assert 0.0 < flipped["unrelated"] <= bound
    assert 0.0 < flipped["random"] <= bound


def test_codes_of_another_instance_carry_its_rule(selector: Bench) -> None:
    for instance, other in ((0, 5), (7, 3), (8, 8)):
        out = selector.outcome(ask_of(selector, instance, other=other))
        rule = int(selector.constituents(other)[0])
        symbol = int(selector.batch.inputs[instance, 0].argmax())
        assert out.answer_after == (symbol + rule) % K


def test_sliders(selector: Bench) -> None:
    own = selector.code(3)[0]
    rule = int(selector.constituents(3)[0])
    np.testing.assert_allclose(own, np.eye(K)[rule], atol=1e-5)
    out = selector.outcome(ask_of(selector, 3, value=ByHand(tuple(own)), where="pair"))
    assert out.answer_after == out.answer_before
    assert out.sentence() == f"The answer stays {out.truth:.0f}: the problem's own answer."
    np.testing.assert_allclose(out.after, out.before, atol=1e-6)
    other = tuple(np.eye(K)[(rule + 2) % K])
    symbol = int(selector.batch.inputs[3, 0].argmax())
    for how, numbers in (("set", other), ("add", tuple(5.0 * np.array(other)))):
        out = selector.outcome(ask_of(selector, 3, value=ByHand(numbers, how),
                                   where="pair"))
        assert out.answer_after == (symbol + rule + 2) % K
    # What is scaled by nothing answers nothing: all symbols are alike.
    out = selector.outcome(ask_of(selector, 3, value=ByHand((0.0,) * K, "scale"),
                               where="pair"))
    np.testing.assert_allclose(out.after, 1.0 / K, atol=1e-3)
    out = selector.outcome(ask_of(selector, 3, value=ByHand((1.0,) * K, "scale")))
    np.testing.assert_allclose(out.after, out.before, atol=1e-6)


def test_the_code_before_and_after(selector: Bench) -> None:
    ask = ask_of(selector, 4, target=selector.targets(4, 0)[0], where="pair")
    codes = selector.outcome(ask).codes
    np.testing.assert_allclose(codes["before"], selector.code(4).ravel())
    target = int(ask.target)
    np.testing.assert_allclose(codes["before"].argmax(), int(selector.constituents(4)[0]))
    assert codes["after"].argmax() == target
    alone = selector.outcome(changed(ask, heads=(target,))).codes
    moved = ~np.isclose(alone["before"], alone["after"], atol=1e-4)
    assert moved.nonzero()[0].tolist() == [target]


def test_keys_are_what_of_a_scope_is_written(selector: Bench) -> None:
    """The code of the query and the symbol, key 0, is the rule; the other keys carry nothing."""
    for instance in range(4):
        ask = ask_of(selector, instance, where="row")
        first = selector.outcome(changed(ask, keys=(0,)))
        np.testing.assert_array_equal(first.outputs[0], selector.outcome(
            changed(ask, where="pair")).outputs[0])
        assert first.answer_after == first.target_answer != first.answer_before
        assert first.exact
        others = selector.outcome(changed(ask, keys=(1, 2)))
        assert others.answer_after == others.answer_before
        np.testing.assert_allclose(others.codes["before"], selector.code(instance, key=1).ravel())


def test_mean_codes(selector: Bench) -> None:
    instance, means = 3, selector.mean_codes(3)
    assert list(means) == list(selector.task.constituents)
    for rule, (name, code) in enumerate(means.items()):
        np.testing.assert_allclose(code, np.eye(K)[[rule]], atol=1e-5)
        if name in selector.targets(instance, 0):
            ask = asked(instance, name, where="pair")
            by_hand = selector.outcome(changed(ask, value=ByHand(tuple(code[0]))))
            np.testing.assert_allclose(by_hand.after, selector.outcome(
                changed(ask, value="class_mean")).after, atol=1e-6)
    counts = selector.references_at(("code",)).count[0].numpy()
    centred = np.stack(list(selector.mean_codes(instance, centred=True).values()))
    np.testing.assert_allclose(np.tensordot(counts, centred, axes=1), 0.0, atol=1e-3)
    assert np.abs(centred).max() > 0.5


# One of each normalization: `test_writing` writes own codes in all kinds.
@pytest.mark.parametrize("kind", ["softmax", "linear", "hyla", "hyla_softmax_rms_head"])
def test_own_codes_leave_every_bit(kind: str) -> None:
    bench = of_task("sraven", kind)
    scopes = bench.task.scopes
    for instance, scope in enumerate(scopes):
        for renormalize in (False, bench.model.cfg.normalization != "none"):
            out = bench.outcome(ask_of(bench, instance, where=scope, layers=(0, 1), which=1,
                                    renormalize=renormalize))
            assert out.exact
            np.testing.assert_allclose(out.outputs[-1], out.before, atol=1e-6)  # identity
            assert not np.allclose(out.outputs[-2], out.before)  # random
            assert np.isfinite(out.outputs).all()
            # Kept is what was answered before, right or wrong: this model has learned nothing.
            assert out.table.set_index("patch")["answer"]["identity"] == out.answer_before


@pytest.mark.parametrize("name", ["sraven", "logic"])
def test_whose_answer_it_is(name: str) -> None:
    bench = of_task(name)
    seen = set()
    for instance in range(10):
        target = bench.targets(instance, 0)[instance % 3]
        out = bench.outcome(ask_of(bench, instance, target=target, value="operation+operands",
                                where="everything", layers=(0, 1)))
        if not out.candidates:
            assert "is not defined here" in " ".join(out.caveats())
            assert list(out.known) == ["base", "operation"][:len(out.known)]
            continue
        answers = out.candidates
        assert list(answers) == ["base", "operation", "operands", "answer"]
        assert answers["base"] == pytest.approx(out.truth, abs=1e-6)
        assert answers["operation"] == pytest.approx(out.target_answer, abs=1e-6)
        least = out.task.least_difference
        near = [c for c, a in answers.items() if abs(out.answer_after - a) <= least / 2]
        assert out.classes == (near or ["else"])
        seen.update(out.classes)
        told_apart = bool((np.diff(sorted(answers.values())) > least).all())
        assert ("do not tell whose" in " ".join(out.caveats())) != told_apart
    assert len(seen) >= 2
    pair = bench.outcome(ask_of(bench, 3, target=target_with_answer(bench, 3)))
    assert list(pair.candidates) == ["base", "operation"]
    assert bench.outcome(ask_of(bench, 3, other=4)).candidates == {}


def target_with_answer(bench: Bench, instance: int) -> str:
    answers = bench.answers(instance)
    return next(name for name in bench.targets(instance, 0) if name in answers)


def test_a_row_that_does_not_fit_both_rules_is_said() -> None:
    bench = of_task("sraven")
    n_values, seen = bench.task.task.config.n_values, set()  # type: ignore[attr-defined]
    for instance in range(4):
        source = bench.constituents(instance)[0]
        slot = torch.tensor([0])
        a, b = operands_of(bench.batch[torch.tensor([instance])], slot)[0].tolist()
        for target, step in (("constant", 0), ("+1", 1), ("sum", b - a)):
            if target != source:
                out = bench.outcome(ask_of(bench, instance, target=target))
                assert out.natural == ((b - a - step) % n_values == 0)
                assert ("answered rightly by luck" in " ".join(out.caveats())) != out.natural
                seen.add(out.natural)
    assert seen == {True, False}


def test_numbers_instead_of_symbols() -> None:
    bench = of_task("logic")
    found = 0
    for instance in range(6):
        for target, answer in bench.answers(instance, 1).items():
            if target == bench.constituents(instance)[1]:
                assert answer == pytest.approx(float(bench.batch.targets[instance, 0]), abs=1e-6)
                continue
            out = bench.outcome(ask_of(bench, instance, target=target, which=1, layers=(0, 1),
                                    where="everything"))
            assert out.exact
            assert out.before.shape == (1,)
            assert out.target_answer == answer
            assert out.counts == (abs(answer - out.truth) >= 0.1)
            found += out.counts
            if not out.counts:
                assert "cannot show a flip" in out.caveats()[0]
                assert not out.source_right
            assert f"{out.answer_after:.3f}" in out.sentence()
    assert found > 1


def test_what_a_figure_and_a_notebook_show(selector: Bench) -> None:
    out = selector.outcome(ask_of(selector, 1))
    html = out._repr_html_()
    assert "data:image/png;base64," in html
    assert out.sentence().replace("'", "&#x27;") in html
    assert list(out.summary()["patch"]) == ["interchange", "control", "unrelated", "random",
                                            "identity"]


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"instance": N}, ConfigError, "instance is 60; expected 0 to 59"),
    ({"target": "+9"}, UnknownNameError, "unknown target '[+]9'; expected one of: [+]"),
    ({"where": "feature"}, UnknownNameError, "unknown scope 'feature'; expected one of: pair"),
    ({"keys": (3,)}, ConfigError, "keys has 3; expected 0 to 2"),
    ({"keys": (1, 2), "where": "pair"}, ConfigError, r"there is none; .* keys \[0\]"),
    ({"value": "class_mean", "other": 3}, ConfigError, "does not put the minimal pair's"),
    ({"value": ByHand((1.0,) * 3)}, ConfigError, "expected 8, one per head"),
    ({"renormalize": True}, ConfigError, "expected renormalize=False"),
])
def test_what_does_not_fit_is_one_error(
    selector: Bench, change: dict[str, object], error: type[Exception], message: str
) -> None:
    wrong = changed(asked(0, selector.targets(0, 0)[0]), **change)
    with pytest.raises(error, match=message):
        selector.outcome(wrong)


def test_own_constituent_is_no_target(selector: Bench) -> None:
    own = selector.constituents(0)[0]
    assert own not in selector.targets(0, 0)
    with pytest.raises(UnknownNameError, match=f"unknown target '[+]{int(own)}'"):
        selector.outcome(asked(0, own))
    logic = of_task("logic")
    for held in logic.constituents(0):
        assert held not in logic.targets(0, 0)


def test_a_mean_of_nothing_and_too_few_instances() -> None:
    bench = of_task("logic")
    known = bench.task.task.config.n_known_terms  # type: ignore[attr-defined]
    assert set(bench.targets(0, 0)) < set(bench.task.constituents[:known])
    never = Bench(bench.model, bench.task, bench.batch, n_reference=2)
    absent = next(name for number, name in enumerate(bench.task.constituents[:known])
              if float(never.references_at(("code",)).count[0, number]) == 0.0
              and name in never.targets(0, 0))
    with pytest.raises(ProbeError, match="none of 2 training instances has"):
        never.outcome(asked(0, absent, value="class_mean"))


def test_a_mean_over_few_is_refused_where_it_is_needed() -> None:
    count = torch.tensor([[5.0, 99.0]])
    task: Any = SimpleNamespace(least_problems=20, constituents=("sum", "constant"))

    def check(*third: int) -> None:
        pairs: Any = SimpleNamespace(slot=torch.zeros(2, dtype=torch.long))
        check_means(Problem(pairs, {}, references=References(count), third=torch.tensor(third)),
                    ["third"], task)

    check(-1, 1)  # -1 is none
    with pytest.raises(TooFewCountError, match="the mean of 'sum' is over 5 training instances"):
        check(1, 0)
