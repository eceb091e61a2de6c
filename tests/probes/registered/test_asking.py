"""Do registered probes have the scores, controls and intervals that their functions imply?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.results import load_result, where
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.registered import PROBES, ProbeResult

Planted = Callable[..., LatentCodes]
PAIR = "query->query"
pytestmark = pytest.mark.usefixtures("own_names")
GIVEN: list[tuple[lc.Points, ...]] = []


def means(train: lc.Points, heldout: lc.Points, *, seed: int = 0, far: bool = False) -> Any:
    """Is the class that of the nearest mean?

    far  of the farthest one
    """
    GIVEN.append((train, heldout))
    centres = np.stack([train.x[train.y == c].mean(axis=0) if (train.y == c).any()
                        else np.full(train.x.shape[1], 1e9) for c in range(len(train.classes))])
    apart = np.linalg.norm(heldout.x[:, None] - centres, axis=2)
    return {"right": (apart.argmax(1) if far else apart.argmin(1)) == heldout.y,
            "seed": np.full(len(heldout), float(seed))}


def size(points: lc.Points) -> Any:
    """How large are the points?"""
    return np.linalg.norm(points.x, axis=1)


@pytest.fixture
def asked() -> Callable[..., ProbeResult]:
    return lc.register_probe("means", columns=("right", "seed"))(means)


def of_codes(planted: Planted, **options: Any) -> tuple[Any, ...]:
    return (lc.subject(planted("train"), planted("ood"), untrained=[
        planted("train", strength=0.0), planted("ood", strength=0.0)]),)


def test_a_score_is_the_mean_over_problems_with_its_interval(
    asked: Callable[..., ProbeResult], planted: Planted
) -> None:
    train, heldout = planted("train"), planted("ood")
    GIVEN.clear()
    found = asked(*of_codes(planted), labels="term_1", pairs=PAIR, layers=1, seed=5,
                  n_bootstrap=200)
    first, scored = GIVEN[0]
    assert first.x.dtype == np.float64
    np.testing.assert_array_equal(first.x, train.select(layer=1, pair=PAIR))
    np.testing.assert_array_equal(np.asarray(first.classes)[first.y], train.labels["term_1"])
    assert set(first.combination) & set(scored.combination) == set()
    right = means(first, scored)["right"]
    row = where(found.table, features="code", quantity="right").iloc[0]
    value, low, high, n = mean_and_interval(
        right.astype(float), heldout.labels["combination"].factorize()[0], 200, seed=5)
    assert row["value"] == pytest.approx(float(value), abs=1e-12)
    assert (row["n"], row["n_combinations"]) == (len(heldout), n)
    assert row["low"] == pytest.approx(float(low), abs=0.1)
    assert row["high"] == pytest.approx(float(high), abs=0.1)
    assert set(where(found.table, quantity="seed")["value"]) == {5.0}
    assert list(found.table["features"].unique()) == ["code", "shuffled", "untrained", "residual"]


def test_contrasts_are_paired_differences(
    asked: Callable[..., ProbeResult], planted: Planted
) -> None:
    found = asked(*of_codes(planted), labels="term_1", pairs=PAIR, n_bootstrap=200)
    values = found.table.set_index(["layer", "features", "quantity"])["value"]
    for row in found.contrasts.table.itertuples():
        control = values[row.layer, row.against, row.quantity]
        assert row.value == pytest.approx(values[row.layer, "code", row.quantity] - control)
        assert row.low <= row.value <= row.high
    planted_in = found.contrasts.table.query("layer == 1 and quantity == 'right'")
    assert set(planted_in["against"]) == {"shuffled", "untrained", "residual"}
    above = planted_in.set_index("against")
    assert above.loc["shuffled", "value"] > 0.4
    assert above.loc["untrained", "low"] > 0.3
    noise = found.contrasts.table.query("layer == 0 and quantity == 'right'").set_index("against")
    assert noise.loc["shuffled", "low"] < 0 < noise.loc["shuffled", "high"]


def test_shuffled_labels_are_those_of_other_cells_of_training_alone(
    asked: Callable[..., ProbeResult], planted: Planted
) -> None:
    GIVEN.clear()
    asked(planted("train"), planted("ood"), labels="term_1", pairs=PAIR, layers=1,
          controls=False, n_shuffles=2, n_bootstrap=100)
    (train, heldout), *shuffled = GIVEN
    assert len(shuffled) == 2
    for dealt, scored in shuffled:
        np.testing.assert_array_equal(scored.y, heldout.y)
        assert (dealt.y != train.y).any()
        cells = pd.Series(dealt.y).groupby([train.combination, train.y]).nunique()
        assert (cells == 1).all()


def test_a_probe_of_one_set_scores_it(planted: Planted) -> None:
    sized = lc.register_probe("size")(size)
    codes = planted("ood")
    found = sized(codes, labels=["term_1", "term_2"], controls=False, pairs=PAIR, n_bootstrap=100)
    expected = np.linalg.norm(codes.select(layer=1, pair=PAIR).astype(float), axis=1).mean()
    of_layer = where(found.table, layer=1, label="term_1").set_index("features")["value"]
    assert of_layer["code"] == pytest.approx(expected, abs=1e-12)
    assert of_layer["code"] == of_layer["shuffled"]  # it looks at no label
    assert found.missing_controls == ("residual", "untrained")
    assert any("Without controls" in note for note in found.caveats)


def test_options_change_it_and_are_kept(
    asked: Callable[..., ProbeResult], planted: Planted
) -> None:
    near, far = (asked(planted("train"), planted("ood"), "term_1", far=far, controls=False,
                       layers=1, pairs=PAIR, n_bootstrap=100) for far in (False, True))
    assert near.table["value"].iloc[0] > far.table["value"].iloc[0]
    assert far.settings["options"] == {"far": True}


def test_it_is_printed_kept_and_opened_without_its_file(
    planted: Planted, tmp_path: Path, own_names: Callable[[], None]
) -> None:
    asked = lc.register_probe(
        "means", columns=("right", "seed"), figure=lambda result, axes: axes.text(0, 0, "mine"),
        sentence=lambda result: f"Right in layer {result.table['layer'].max()}.")(means)
    found = asked(*of_codes(planted), labels="term_1", pairs=PAIR, n_bootstrap=100)
    assert repr(found).startswith("ProbeResult of means: Right in layer 1.\ncode above the ")
    assert [text.get_text() for text in found.figure().axes[0].texts] == ["mine"]
    folder = found.save(tmp_path / "means")
    assert (folder / "figure.png").stat().st_size > 1_000
    own_names()
    again = load_result(folder)
    assert isinstance(again, ProbeResult)
    pd.testing.assert_frame_equal(again.table, found.table)
    pd.testing.assert_frame_equal(again.contrasts.table, found.contrasts.table)
    assert repr(again) == repr(found)
    assert len(again.figure().axes) == 2  # the one of all probes: a panel per quantity
    assert "means" not in PROBES


def test_other_features_have_controls_of_their_own(
    asked: Callable[..., ProbeResult], runs: list[lc.Run]
) -> None:
    found = asked(runs[0], n=60, features=["row", "code"], layers=[0, 1], n_bootstrap=100)
    of_layer = where(found.table, layer=1, quantity="right")
    assert set(of_layer["features"]) == {
        "row", "shuffled row", "untrained row", "code", "shuffled", "untrained", "residual"}
    against = where(found.contrasts.table, layer=1, features="row", quantity="right")["against"]
    assert set(against) == {"shuffled", "untrained", "residual"}
    assert list(found.summary())[4:7] == ["row", "code", "residual"]
    assert len(found.figure().axes) == 2
    again = asked(runs[0], n=60, features="row", layers=1, n_bootstrap=100)
    pd.testing.assert_frame_equal(
        where(again.table, features="row").reset_index(drop=True),
        where(found.table, features="row", layer=1).reset_index(drop=True))


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"labels": "terms"}, ProbeError, "labels are terms, of which a problem has several"),
    ({"labels": ["term_1", "terms"]}, ProbeError, "labels are terms, of which a problem has"),
    ({"labels": "target"}, ProbeError, "label 'target' .* is a measurement"),
    ({"split": "train"}, ProbeError, "probe 'means' is fitted on"),
    ({"features": "rows"}, ProbeError, "a model is needed"),
])
def test_what_cannot_be_asked_is_named(
    asked: Callable[..., ProbeResult], planted: Planted, options: dict[str, Any],
    error: type[Exception], message: str,
) -> None:
    with pytest.raises(error, match=message):
        asked(planted("train"), planted("ood"), **{"labels": "term_1", "controls": False,
                                                   **options})


def test_combinations_are_not_shared_between_what_is_fitted_and_scored(
    asked: Callable[..., ProbeResult], planted: Planted
) -> None:
    train = planted("train")
    with pytest.raises(ProbeError, match=r"held-out combinations occur in training|are training"):
        asked(train, planted("train", seed=1), labels="term_1", controls=False)


def test_a_failure_on_real_problems_names_the_place(planted: Planted) -> None:
    def fails(points: lc.Points) -> Any:
        """Does it fail?"""
        if points.x.shape[1] == 12:
            raise RuntimeError("too wide")
        return points.x[:, 0]

    asked = lc.register_probe("fails")(fails)
    with pytest.raises(ProbeError, match=r"probe 'fails': for code of layer 0, query->query, label "
                                         r"'term_1', its function raised RuntimeError: too wide"):
        asked(planted("ood"), labels="term_1", controls=False, pairs=PAIR)
