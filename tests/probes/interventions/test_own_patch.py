"""Patches of one's own: tried at registration, checked when they are put, composed, kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hand_built import operation_model
from selector import K, Selector
from torch import Tensor

import latentcode as lc
from latentcode.errors import ConfigError, ProbeError, UnknownNameError
from latentcode.probes.interventions import InterventionResult, intervene_model
from latentcode.probes.interventions.patch import Mask, Patch, every_patch, layer_sets
from latentcode.tasks.counterfactuals import MinimalPairs

Value = Callable[..., Any]


def rates(*patches: Any, **settings: Any) -> InterventionResult:
    return intervene_model(operation_model(), Selector(), patches, n=80, split="train",
                           n_reference=400, n_bootstrap=100, **settings)


def of(result: InterventionResult, metric: str) -> list[float]:
    return result.table[result.table["metric"] == metric]["value"].tolist()


@pytest.fixture(autouse=True)
def _forgotten(own_names: Callable[[], None]) -> None:
    """What a test registers is not there in the next."""


def test_a_function_and_its_name_do_what_the_registered_patch_does() -> None:
    lc.register_patch("theirs")(lambda base, source, problem: source.clone())

    @lc.register_patch("mean_of_target", means=True)
    def mean_of_target(base: Tensor, source: Tensor, problem: Any) -> Tensor:
        """The mean over problems with the source's constituent."""
        mean: Tensor = problem.mean(problem.pairs.source_label)
        return mean

    result = rates(Patch("interchange"), Patch("theirs"), Patch(lambda base, source, _: source),
                   Patch("class_mean"), Patch("mean_of_target"))
    for metric in ("flip", "operation"):
        assert of(result, metric) == [1.0] * 5
    table = result.table[result.table["metric"] == "operation"]
    assert table["patch"].tolist() == ["interchange", "theirs", "<lambda>", "class_mean",
                                       "mean_of_target"]
    assert "with the source's constituent" in str(Patch("mean_of_target"))


def test_where_is_a_scope_a_mask_tokens_or_a_function() -> None:
    """The code of the asked query and the symbol, key 0, is the rule."""
    n_tokens = Selector().sample("train", 1, torch.Generator()).bases.inputs.shape[1]
    column = torch.zeros(n_tokens, n_tokens, dtype=torch.bool)
    column[:, 0] = True

    def first_key(pairs: MinimalPairs) -> Tensor:
        return column.expand(len(pairs), -1, -1)

    result = rates(Patch(where="everything", keys=0), Patch(where=column), Patch(where=first_key),
                   Patch(where="everything", keys=(1, -1)), Patch(where=~column))
    assert of(result, "flip") == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert result.table["scope"].unique().tolist() == [
        "everything, keys 0", Mask.of(column).named, "first_key", "everything, keys 1,-1",
        Mask.of(~column).named]


@pytest.mark.parametrize(("where", "message"), [
    ({"site": "value", "where": "everything", "queries": 0}, "value is of keys alone"),
    ({"site": "z", "keys": 0}, "expected None, or queries=, as z is of queries alone"),
    ({"value": lc.ByHand((1.0, 2.0))}, "one per head"),
    ({"where": torch.ones(2, 3)}, r"mask .*\[2, 3\]; expected bool \[query, key\]"),
    ({"where": lambda pairs: None}, r"expected bool \[\d+, 3, 3\]"),
    ({"keys": 3}, "keys has 3; expected 0 to 2"),
    ({"where": "pair", "keys": 1}, "pair, keys 1, of which there is none"),
    ({"where": torch.zeros(3, 3) > 0}, "where is a mask without a code"),
    ({"value": 3}, "value is 3; expected the name of a patch, or a function"),
])
def test_a_place_that_is_not_there_is_refused(where: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rates(Patch(**where))


@pytest.mark.parametrize(("field", "value", "message"), [
    ("site", "mlp", "unknown site 'mlp'; expected one of: code, value, z, message"),
    ("site", "code+key", "unknown site 'key'"),
    *((name, (), f"{name} is empty") for name in ("layers", "heads", "queries", "keys")),
])
def test_what_fits_no_model_is_refused_when_it_is_made(
    field: str, value: Any, message: str
) -> None:
    for make in (Patch, partial(replace, Patch())):
        with pytest.raises(ConfigError, match=message):
            make(**{field: value})
    with pytest.raises(ConfigError, match="codes alone are renormalised"):
        Patch(site="value", renormalize=True)


def test_a_name_and_a_function_that_raises_are_one_error() -> None:
    for register in (lc.register_patch, lc.register_probe):
        with pytest.raises(ConfigError, match=r"the name of a .* is <function .*, as in lc\."):
            register(lambda base, source, problem: base)
    with pytest.raises(ConfigError, match="where is <lambda>, which raised AttributeError"):
        rates(Patch(where=lambda pairs: pairs.nope))
    with pytest.raises(ConfigError, match=r"patch .mean.: .*means=True"):
        lc.register_patch("mean")(lambda base, source, problem: problem.mean(
            problem.pairs.source_label))
    with pytest.raises(ConfigError, match="expected finite ones"):
        lc.ByHand((1.0, float("nan")))


BROKEN: dict[str, tuple[Value, str]] = {
    "another shape": (lambda base, source, _: base[:, :1], "shape"),
    "no tensor": (lambda base, source, _: None, "tensor"),
    "not finite": (lambda base, source, _: base / 0.0, "finite"),
    "outside its place": (lambda base, source, _: base.mul_(2.0), "change"),
    "the source": (lambda base, source, _: source.add_(1.0), "change"),
    "raises": (lambda base, source, _: base[99], "IndexError"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_put_is_one_error_that_names_it(case: str) -> None:
    function, word = BROKEN[case]
    with pytest.raises(ConfigError, match=rf"patch 'broken'.*{word}"):
        lc.register_patch("broken")(function)
    with pytest.raises(UnknownNameError, match=r"unknown patch 'broken'.*lc.register_patch"):
        rates(Patch("broken"))
    with pytest.raises(ProbeError, match=rf"patch '<lambda>'.*{word}") as raised:
        rates(Patch(function))
    assert "site 'code' of layer 0" in str(raised.value)


def test_what_cannot_be_registered() -> None:
    lc.register_patch("twice", source=None, sites="code")(lambda base, source, _: 2 * base)
    with pytest.raises(ConfigError, match=r"patch 'twice' is registered already.*replace=True"):
        lc.register_patch("twice")(lambda base, source, _: base)
    lc.register_patch("twice", source=None, sites="code", replace=True)(
        lambda base, source, _: 3 * base)
    with pytest.raises(ConfigError, match="'interchange' comes with latentcode"):
        lc.register_patch("interchange")(lambda base, source, _: base)
    for settings, what in (({"source": "sum"}, "source"), ({"sites": "key"}, "site")):
        with pytest.raises(UnknownNameError, match=f"unknown {what}"):
            lc.register_patch("other", **settings)(lambda base, source, _: base)
    with pytest.raises(ConfigError, match="'twice' at site 'value'; expected 'code'"):
        rates(Patch("twice", "everything", site="value"))


def test_what_has_no_name_of_its_own_in_tables_is_refused() -> None:
    two = [Patch(lambda base, source, _: source), Patch(lambda base, source, _: base)]
    with pytest.raises(ConfigError, match=r"2 interventions go by '<lambda> row 0.*in tables"):
        rates(*two)
    halves = [torch.arange(9).reshape(3, 3) < 4, torch.arange(9).reshape(3, 3) > 4]
    table = rates(*(Patch(where=half) for half in halves),
                  *(Patch(lc.ByHand((number,) * K)) for number in (0.5, 0.25)),
                  Patch("control", where=halves[1])).table
    assert len(table[["patch", "scope"]].drop_duplicates()) == 5


def test_a_mean_that_was_not_measured_does_not_count() -> None:
    @lc.register_patch("mean_of_own", means=True)
    def mean_of_own(base: Tensor, source: Tensor, problem: Any) -> Tensor:
        mean: Tensor = problem.mean(problem.pairs.source_label)
        return mean

    with pytest.raises(ProbeError, match="means=True"):
        rates(Patch(mean_of_own))
    task = Selector()
    task.least_problems = 1
    result = intervene_model(operation_model(), task, [Patch("mean_of_own"), Patch("class_mean")],
                             n=60, split="train", n_reference=6, n_bootstrap=100)
    n = result.table.groupby("patch")["n"].first()
    assert 0 < n["mean_of_own"] <= n["class_mean"] < 60


def test_what_writes_through_numpy_is_seen() -> None:
    def sly(base: Tensor, source: Tensor, _: Any) -> Tensor:
        base.numpy()[:] = 0.0
        return source

    with pytest.raises(ProbeError, match="patch 'sly' changes base in place"):
        rates(Patch(sly))


def test_patches_in_one_pass_are_put_one_after_the_other() -> None:
    undone = Patch("interchange") + Patch(lambda base, source, problem: torch.roll(base, 1, 1))
    zeroed = Patch("interchange") + Patch("zero_ablation")
    apart = Patch("interchange", keys=0) + Patch("zero_ablation", keys=(1, 2))
    result = rates(Patch("interchange"), undone, zeroed, apart, Patch("zero_ablation") + undone)
    # The rule after the target's is not the source's; zeros say nothing, whatever was before.
    assert of(result, "flip")[:2] == [1.0, 0.0]
    assert of(result, "flip")[2] <= 3 / K
    assert of(result, "flip")[3:] == [1.0, 0.0]
    assert result.table["patch"].unique().tolist()[2] == "interchange + zero_ablation"
    assert str(apart).count("\n+ ") == 1
    assert (undone + apart).parts == (*undone.parts, *apart.parts)


def test_a_result_holds_what_can_be_run_again(tmp_path: Path) -> None:
    lc.register_patch("theirs")(lambda base, source, problem: source)
    asked_for = (Patch("theirs", keys=(0,)), Patch(lc.ByHand((0.5,) * K, "add"), "pair"),
                 Patch(where=torch.ones(3, 3) > 0), Patch("interchange") + Patch("zero_ablation"))
    found = InterventionResult.load(rates(*asked_for).save(tmp_path / "result"))
    assert found.patches() == list(asked_for)
    assert isinstance(found.patches()[2].parts[0].where, Mask)
    assert found.table.equals(rates(*found.patches()).table.astype(found.table.dtypes))
    once = InterventionResult.load(rates(Patch(lambda base, source, _: base)).save(
        tmp_path / "once"))
    with pytest.raises(ConfigError, match=r"function '<lambda>'.*lc.register_patch"):
        once.patches()
    as_data = {"value": "theirs", "where": "row", "layers": [0], "keys": [0]}
    assert of(rates([as_data]), "flip") == [1.0]
    with pytest.raises(UnknownNameError, match="unknown field of a patch 'scop'"):
        rates([{**as_data, "scop": "row"}])


def test_numbers_of_numpy_and_tensors_are_kept(tmp_path: Path) -> None:
    given = Patch(lc.ByHand(np.full(K, 0.5, dtype=np.float32), "add"), layers=np.arange(1),
                  heads=torch.arange(2), alpha=np.float32(2.0), keys=np.int64(0))
    assert InterventionResult.load(rates(given).save(tmp_path / "kept")).patches() == [given]
    assert sum([Patch(), Patch("identity")]).parts == (Patch(), Patch("identity"))


@pytest.mark.slow
def test_the_bench_puts_the_source_that_a_patch_names() -> None:
    lc.register_patch("both", source="operation+operands")(lambda base, source, _: source)
    bench = lc.Bench.of_run("sraven-hyla", n=20, n_reference=64)
    assert "both" in bench.values
    target = bench.targets(2, 0)[0]
    asked_for = {name: bench.patch(Patch(name, layers=(2, 3)), 2, target)
                 for name in ("both", "operation+operands", "interchange")}
    assert (asked_for["both"].outputs == asked_for["operation+operands"].outputs).all()
    assert (asked_for["both"].after != asked_for["interchange"].after).any()
    assert asked_for["both"].classes == asked_for["operation+operands"].classes
    assert asked_for["both"].exact
    assert bench.patch(Patch(keys=-3), 2, target).ask.key == -3


def test_every_combination_of_words() -> None:
    words = {"value": ["interchange", "steer"], "where": ["row", "within context"],
             "layers": ["each", "all"], "alpha": [1.0, 2.0]}
    with pytest.raises(ConfigError, match=r"alpha is 2\.0, and no patch of identity steers"):
        list(every_patch({"value": "identity", "alpha": 2.0}, range(2)))
    found = list(every_patch(words, range(2)))
    assert len(set(found)) == len(found) == 2 * 3 * (1 + 2)
    assert layer_sets(["2,3", "first", 1], range(4)) == ((2, 3), (0,), (1,))
    with pytest.raises(ConfigError, match="layers is 'middle'; expected each"):
        layer_sets("middle", range(4))
