"""One where several can be asked for, and a run by any of its names, in every public function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentcode as lc
from latentcode.errors import ConfigError, ProbeError, UnknownNameError, as_tuple, check_count
from latentcode.probes.common.harness import subjects_of

pytestmark = pytest.mark.usefixtures("unchecked_signatures")
PAIR = "response->response"


@pytest.mark.parametrize(("given", "several"), [
    ("query->query", ("query->query",)), (Path("runs/a"), (Path("runs/a"),)), (0, (0,)),
    (np.int64(3), (np.int64(3),)), ((), ()), (["a", "b"], ("a", "b")), (range(2), (0, 1)),
    (np.arange(2), (0, 1)), ((x for x in "ab"), ("a", "b")), ({"a": 1}, ("a",))])
def test_one_is_one_and_several_are_several(given: Any, several: tuple[Any, ...]) -> None:
    assert as_tuple(given) == several


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    folder = tmp_path_factory.mktemp("run") / "untrained"
    return lc.Run.create(folder, lc.preset("smoke", "sraven", "softmax"))


def test_a_pair_and_a_layer_need_no_list(run: lc.Run) -> None:
    codes = lc.extract(run, n=5, pairs=PAIR, layers=1, untrained=True)
    assert codes.layers == (1,)
    assert [pair.name for pair in codes.pairs] == [PAIR]
    with pytest.raises(UnknownNameError, match="unknown pair 'q->k'"):
        lc.extract(run, pairs="q->k", untrained=True)
    with pytest.raises(UnknownNameError, match="unknown pair 'q->k'"):
        lc.similarity(codes, label="rule", pairs="q->k", controls=False)
    with pytest.raises(UnknownNameError, match="unknown label 'hue'"):
        lc.project(codes, labels="hue")
    with pytest.raises(UnknownNameError, match="unknown split 'odd'"):
        lc.project("sraven-hyla", splits="odd")
    assert lc.Patch(layers=2, heads=1) == lc.Patch(  # type: ignore[arg-type]
        layers=(2,), heads=(1,))


def test_one_run_is_one(run: lc.Run) -> None:
    for one in (run, run.path, str(run.path)):
        assert [of.run.path for of in subjects_of(one, None)] == [run.path]
        with pytest.raises(ProbeError,
                           match=r"1 model is given: .*untrained.*; expected at least 2"):
            lc.align(one)  # type: ignore[arg-type]
    with pytest.raises(ProbeError, match="0 models are given: none; expected at least 1"):
        lc.topography([])


def test_a_run_is_asked_for_by_any_of_its_names() -> None:
    """Whatever public function takes a run takes its folder and a name of the zoo, too."""
    asked = {
        name: parameter.annotation for name in lc.__all__ if inspect.isfunction(getattr(lc, name))
        for parameter in inspect.signature(getattr(lc, name)).parameters.values()
        if re.search(r"\b(Run|Model)\b", str(parameter.annotation))}
    assert {"extract", "instances", "decode", "project", "knn_purity", "similarity", "topography",
            "align", "value_networks", "intervene", "attribute", "das", "subject", "load_run",
            "load_model", "load_codes"} <= set(asked)
    assert all(re.search(r"Run \| str \| Path|\bModel\b", annotation)
               for annotation in asked.values()), asked


@pytest.mark.parametrize("n", [2.5, "12", True, 0, np.int64(0)])
def test_a_count_is_a_whole_number(n: Any) -> None:
    check_count("n", np.int64(1))
    with pytest.raises(ConfigError, match=r"n is .*; expected a whole number of at least 1"):
        check_count("n", n)


def test_every_count_is_checked(run: lc.Run) -> None:
    """Whoever asks: the numbers of instances, draws and replicates are checked in one place."""
    n: Any = 2.5
    asked: list[Callable[[], object]] = [
        lambda: lc.extract(run, n=n, untrained=True),
        lambda: lc.extract(run, untrained=True, batch_size=n),
        lambda: lc.intervene("sraven-hyla", n=n), lambda: lc.attribute("sraven-hyla", n=n),
        lambda: lc.intervene("sraven-hyla", n_bootstrap=n),
        lambda: lc.decode("sraven-hyla", n_train=n),
        lambda: lc.decode(run, features="row", n_train=n),
        lambda: lc.align(["sraven-hyla", "sraven-linear"], n_train=n),
        lambda: lc.project("sraven-hyla", n=n), lambda: lc.similarity("sraven-hyla", n_samples=n),
        lambda: lc.value_networks("sraven-hyla", n=n),
        lambda: lc.das("sraven-hyla", n=n)]
    for ask in asked:
        with pytest.raises(lc.LatentCodeError, match=r" is 2\.5; expected a whole number of at"):
            ask()


def test_numbers_of_numpy_are_counts(run: lc.Run) -> None:
    assert len(lc.extract(run, n=np.int64(3), untrained=True)) == 3  # type: ignore[arg-type]


def test_the_name_of_a_task_stands_for_its_defaults(run: lc.Run) -> None:
    assert lc.make_task("logic").config == lc.LogicConfig()
    with pytest.raises(UnknownNameError, match="unknown task 'logik'; expected one of: logic, "):
        lc.make_task("logik")
    with pytest.raises(ConfigError, match="config is 3; expected the configuration of a task"):
        lc.make_task(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"problems is 'sraven', .* run\.config\.task"):
        lc.extract(run, n=3, problems="sraven")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["mean", ["mean"]])
def test_an_intervention_is_no_name(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"interventions has 'mean'; expected lc\.Patch"):
        lc.intervene("sraven-hyla", interventions=given)
