"""Over many instances: each is written as it is alone, and the classes are what the codes carry."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from asked import asked, untrained_bench
from hand_built import MODELS
from selector import Selector

from latentcode.errors import ConfigError
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions import Bench, ByHand, Patch
from latentcode.probes.interventions.outcomes import N_BOOTSTRAP

N = 40


of_task = cache(partial(untrained_bench, n=N, n_reference=60, seed=4))


@cache
def of_selector(name: str) -> Bench:
    drawn = Selector().sample("train", N, torch.Generator().manual_seed(0))
    return Bench(MODELS[name](), Selector(), drawn.bases, n_reference=60)


@pytest.mark.parametrize(("name", "what"), [
    ("sraven", "operation+operands"), ("sraven", "class_mean"), ("logic", "operands"),
    ("logic", "another instance's"), ("logic", "by hand")])
def test_each_instance_is_written_as_it_is_alone(name: str, what: str) -> None:
    bench = of_task(name, right=True)
    values = {"another instance's": "interchange",
              "by hand": ByHand((0.5,) * bench.model.cfg.n_heads)}
    ask = asked(0, bench.targets(0, 1)[0], 1, values.get(what, what), "everything", (0, 1),
                other=3 if what == "another instance's" else None)
    out = bench.replicate(ask.patch, range(7), which=1, other=ask.other, batch_size=4)
    assert out.exact
    assert out.n_counted == out.table["number"].nunique() >= 4
    classes = set()
    for number, rows in out.table.groupby("number"):
        alone = bench.outcome(replace(ask, instance=int(str(number)),
                                      target=rows["source_label"].iloc[0]))
        first = alone.table[alone.table["draw"] == 0].set_index("patch")
        for row in rows.itertuples():
            if row.patch != "random":
                assert row.answer == pytest.approx(first.loc[row.patch, "answer"], abs=1e-5)
        if "B(x)" in rows:
            assert rows["B(x)"].iloc[0] == pytest.approx(alone.target_answer, abs=1e-6)
            assert alone.counts
        assert rows["A(x)"].iloc[0] == pytest.approx(alone.truth, abs=1e-6)
        if alone.candidates:
            assert [rows["class"].iloc[0]] == alone.classes
            assert alone.natural
            assert "do not tell whose" not in " ".join(alone.caveats())
        classes.update(rows["class"])
    assert len(classes) >= 2 or not ask.of_source


def test_intervals_are_those_of_the_library() -> None:
    out = of_selector("operation").replicate(Patch(), batch_size=7)
    block = out.table[out.table["patch"] == "random"]
    hits = (block["class"] == "else").to_numpy(np.float64)
    mean, low, high, n = mean_and_interval(hits, block["combination"].to_numpy(), N_BOOTSTRAP, 0)
    row = out.rates().set_index(["patch", "class"]).loc["random", "else"]
    assert (row["value"], row["low"], row["high"]) == (mean, low, high)
    assert (row["n"], row["n_combinations"]) == (N, n)
    assert 0.0 <= low < mean < high <= 1.0
    assert f"clustered by the {n} combinations" in " ".join(out.caveats())


def test_what_does_not_count_is_said() -> None:
    bench = of_task("sraven", right=False)
    out = bench.replicate(Patch())
    assert out.left_out["wrong"] > N / 2
    assert out.left_out["alike"] >= sum(  # what its rule answers to other operands is not defined
        bench.constituents(i)[0] == "distribute-three" for i in range(N))
    assert out.n_counted + sum(out.left_out.values()) == N == out.n_seen
    assert f"{out.left_out['wrong']} that the model answers wrongly" in out.caveats()[0]
    selector = of_selector("operation")
    own = selector.replicate(Patch(), range(3, 8), other=4)
    assert dict(own.left_out) == {"wrong": 0, "alike": 0, "unsolved": 0, "own": 1}
    assert 4 not in set(own.table["number"])


def test_it_can_be_stopped() -> None:
    first = next(of_selector("operation").replicating(Patch(), batch_size=15))
    assert (first.n_seen, first.n, first.n_counted) == (15, N, 15)


def test_nothing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = of_selector("operation")
    monkeypatch.setattr(bench.task, "right", lambda pairs, logits, of: torch.zeros(
        len(logits), dtype=torch.bool))
    out = bench.replicate(Patch(), range(5))
    assert out.sentence() == "None of 5 instances counts."
    assert len(out.table) == 0
    assert out.rates()["value"].isna().all()
    assert "None of 5" in out._repr_html_()


@pytest.mark.parametrize(("numbers", "message"), [
    ([], "instances are empty"),
    ([N], "instance is 40; expected 0 to 39"),
    ([3, 1, 3], r"instances name \[3\] more than once"),
])
def test_what_does_not_fit_is_one_error(numbers: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of_selector("operation").replicate(Patch(), numbers)
