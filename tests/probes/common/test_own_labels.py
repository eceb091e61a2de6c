"""Labels that are functions of a batch: the same in every verb, and refused before any work."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from decoded_codes import decode_codes

import latentcode as lc
from latentcode.errors import ConfigError, LatentCodeError, ProbeError, UnknownNameError
from latentcode.probes.common.labels import custom_labels
from latentcode.tasks import Batch


def even(batch: Batch) -> torch.Tensor:
    return batch.targets[:, 0] % 2 == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    """Of a model that was never trained, as far as instances need one."""
    folder = tmp_path_factory.mktemp("run") / "untrained"
    return lc.Run.create(folder, lc.preset("smoke", "sraven", "softmax"))


def test_values_are_those_of_the_instances(run: lc.Run) -> None:
    task = lc.make_task(run.config.task)
    labels = {"even": even, "name": lambda batch: np.where(even(batch), "even", "odd"),
              "symbol": lambda batch: batch.targets[:, 0].tolist()}
    train, ood = custom_labels(labels, lc.subject(run), [("train", 50), ("ood", 20)], seed=4)
    for split, values, n in (("train", train, 50), ("ood", ood, 20)):
        symbols = task.labels(lc.instances(task, split, n, seed=4))
        batch = lc.instances(task, split, n, seed=4)
        assert list(values) == ["even", "name", "symbol"]
        np.testing.assert_array_equal(values["even"], batch.targets[:, 0].numpy() % 2 == 0)
        np.testing.assert_array_equal(values["symbol"], batch.targets[:, 0])
        assert (values["name"] == np.where(values["even"], "even", "odd")).all()
        assert len(symbols) == n
    names = ["rule", "rules", "rule_0", "combination", "accuracy"]
    assert custom_labels(names, lc.subject(run), [("train", 5)], seed=0) == [{}]


def test_a_name_is_refused_before_any_work(
    run: lc.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lc.Run, "load_model", pytest.fail)
    for verb in (lc.decode, lc.project, lc.value_networks):
        with pytest.raises(UnknownNameError, match=r"'colour'; expected one of: rule, rules, "):
            verb(run, labels=["rule", "colour"])
        with pytest.raises(ConfigError, match=r"texts \('rule', 'colour'\).* by labels="):
            verb(run, ["rule", "colour"])
    with pytest.raises(UnknownNameError, match="'colour'"):
        lc.similarity(run, label="colour")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "length": ({"x": lambda batch: batch.targets[:3, 0]}, r"'x' has shape \(3,\); expected \(64,"),
    "shape": ({"x": lambda batch: batch.targets}, r"'x' has shape \(64, \d\)"),
    "floats": ({"x": lambda batch: batch.targets[:, 0] / 2}, r"'x' .*is a measurement \(float32\)"),
    "one class": ({"x": lambda batch: batch.targets[:, 0] >= 0},
                  "'x' has a single value, True, in all 64 instances"),
    "raises": ({"x": lambda batch: batch.rules}, "'x' cannot be computed: .* AttributeError"),
    "no function": ({"x": 3}, "label 'x' is 3; expected a function of a batch"),
    "resolved": ({"rule": even}, "label 'rule' exists already"),
    "each other": ({"a_1": even, "a": even}, "label 'a' exists already"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_label_is_said_before_anything_is_extracted(
    bad: str, run: lc.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extracted(*_: Any, **__: Any) -> None:
        raise AssertionError("codes were read")

    monkeypatch.setattr("latentcode.codes.reader.Reader.read", extracted)
    labels, message = BAD[bad]
    with pytest.raises(LatentCodeError, match=message) as caught:
        lc.decode(run, labels=labels, n_train=64)
    assert "\n" not in str(caught.value)
    if bad == "length":
        for verb in (lc.project, partial(lc.value_networks, n_inputs=8)):
            with pytest.raises(LatentCodeError, match=message):
                verb(run, labels=labels, n=64)


def test_verbs_that_need_more_than_a_function_say_so(run: lc.Run) -> None:
    with pytest.raises(ProbeError, match="label 'even' has no distances between its values"):
        lc.topography(run, labels={"even": even})
    codes = lc.extract(run, n=20, untrained=True)
    other = replace(codes, meta=codes.meta | {"run": "other"})
    for ask in (lambda: decode_codes(codes, codes, {"even": even}),
                lambda: lc.project(codes, labels={"even": even}),
                lambda: lc.align([lc.subject(codes, codes), lc.subject(other, other)],
                                 labels={"even": even})):
        with pytest.raises(ProbeError, match=r"expected names, .*codes\.with_labels"):
            ask()


@pytest.mark.slow
def test_every_verb_takes_functions(runs: list[lc.Run]) -> None:
    """What a function gives is what the same values give as a label of the codes."""
    run, own = runs[0], {"even": even}
    n = {"n_train": 60, "n_heldout": 60}
    table = lc.decode(run, labels=own, layers=0, **n).table  # type: ignore[arg-type]
    assert set(table["label"]) == {"even"}
    assert set(table["n_classes"]) == {2}
    aligned = lc.align([runs[0], runs[2]], labels=own, layers=0, n_bootstrap=100, **n)  # type: ignore
    assert set(aligned.transfer["label"]) == {"even"}
    found = lc.similarity(run, label=own, layers=0, n=60, n_bootstrap=100)
    assert set(found.cosines["row"]) == {"True", "False"}
    plane = lc.project(run, labels=own, splits="ood", method="pca", layers=1, n=60)
    task = lc.make_task(run.config.task)
    batch = lc.instances(lc.make_task(task.probe_config), "ood", 60)
    np.testing.assert_array_equal(plane.coordinates["even"], even(batch))
    networks = lc.value_networks(run, labels=own, layers=1, n=60, n_inputs=8,
                                 controls=False).networks
    assert set(networks["class"]) == {"True", "False"}
    assert networks.drop_duplicates("class")["n"].sum() == 60
