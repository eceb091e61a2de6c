"""The map of one problem: estimates sum to the effect of all codes, and each code is patched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hand_built import operation_model
from selector import Selector

import latentcode as lc
from latentcode.codes.instances import instances
from latentcode.errors import ConfigError, ProbeError
from latentcode.probes.attribution import ProblemMap, attribute_problem
from latentcode.probes.interventions import Bench, Patch


def bench_of(name: str) -> Bench:
    config = lc.preset("smoke", name, "hyla")
    task = lc.make_task(config.task)
    model = lc.HookedTransformer(config.model, seed=1).eval()
    return Bench(model, lc.make_counterfactuals(task, factorial=False),
                 instances(task, "ood", range(20)), n_reference=50)


def some_pairs(bench: Bench) -> tuple[int, str]:
    """Return an instance and a target whose answers differ."""
    return next((i, t) for i in range(9) for t in bench.targets(i, 0)
                if bool(bench.pairs(i, 0, t, 1).counts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sraven", "logic"])
def test_estimates_sum_to_the_effect_of_all_codes(name: str) -> None:
    bench = bench_of(name)
    bench.model.double()
    instance, target = some_pairs(bench)
    pairs = bench.pairs(instance, 0, target, 1)
    for batch in (pairs.bases, pairs.sources):
        object.__setattr__(batch, "inputs", batch.inputs.double())
    found = attribute_problem(bench.model, bench.task, pairs, n_points=400)
    assert found.estimated == pytest.approx(found.everything, rel=0.02, abs=1e-6)
    assert found.everything != 0.0
    assert found.estimates.shape == found.effects.shape == (
        bench.model.cfg.n_layers, pairs.bases.inputs.shape[1])


@pytest.mark.parametrize("name", ["sraven", "logic"])
def test_an_effect_is_that_of_the_bench(name: str) -> None:
    """What the map says of one code is what writing it with `keys` does."""
    bench = bench_of(name)
    instance, target = some_pairs(bench)
    found = attribute_problem(bench.model, bench.task, bench.pairs(instance, 0, target, 8)[:1])
    for layer, key in ((0, 3), (1, found.query)):
        out = bench.patch(Patch(where="row", layers=layer, keys=key), instance, target)
        if out.symbolic:
            to, since = int(out.target_answer), int(out.truth)
            moved = np.log(out.after[to] / out.after[since]) - np.log(
                out.before[to] / out.before[since])
        else:
            moved = np.sign(out.target_answer - out.truth) * (out.after - out.before)[0]
        assert found.effects[layer, key] == pytest.approx(moved, rel=1e-3, abs=1e-6)


def test_the_code_that_carries_the_operation_is_found() -> None:
    """One layer, in which the code of the answering query and the symbol is the rule."""
    batch = Selector().sample("train", 20, torch.Generator().manual_seed(0)).bases
    bench = Bench(operation_model(), Selector(), batch)
    for instance in range(4):
        for which in (0, 1):
            target = bench.targets(instance, which)[0]
            found = attribute_problem(bench.model, bench.task,
                                      bench.pairs(instance, which, target, 1))
            assert found.query == 1 + which
            for values in (found.estimates, found.effects):
                assert np.unravel_index(values.argmax(), values.shape) == (0, 0)


def test_what_cannot_be_asked() -> None:
    bench = bench_of("sraven")
    instance, target = some_pairs(bench)
    pairs = bench.pairs(instance, 0, target, 1)
    with pytest.raises(ConfigError, match="interchange"):
        attribute_problem(bench.model, bench.task, pairs, "rest")
    with pytest.raises(ProbeError, match="not both defined, or hardly differ"):
        attribute_problem(bench.model, bench.task,
                          replace(pairs, counts=torch.zeros_like(pairs.counts)))
    unknown = torch.full((1, 4), torch.nan, dtype=torch.float64)
    with pytest.raises(ProbeError, match="not both defined, or hardly differ"):
        attribute_problem(bench.model, bench.task, replace(pairs, candidates=unknown),
                          "operation+operands")
    # The answer of a minimal pair is known without them.
    attribute_problem(bench.model, bench.task, replace(pairs, candidates=unknown))


def test_the_correlation_is_of_codes_that_do_something() -> None:
    zeros = np.zeros((1, 6))
    assert np.isnan(ProblemMap(0, zeros, zeros, 0.0, 0.0).correlation)
    x = np.array([[0.0, 0.0, 1.0, 2.0, 3.0, 0.0]])
    assert ProblemMap(0, x, 2 * x, 0.0, 0.0).correlation == pytest.approx(1.0)
    y = np.array([[0.0, 0.0, 3.0, 3.0, 3.0, 0.0]])
    assert np.isnan(ProblemMap(0, x, y, 0.0, 0.0).correlation)
