"""Does the page show what is known of a model: probes, cosines, training, saved results?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from decoded_codes import decode_codes
from places import GOLDEN
from small_app import RULES, charts, drawn_codes, shown, text

import latentcode as lc
from latentcode.app.data.loaded import computed_results, entry, saved_results
from latentcode.app.pages.model import (
    same_value_cosines,
    training_chart,
    unit_vectors,
    within_sentence,
)
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.probes.similarity import cosine_matrix, similarity
from latentcode.runs import Run


def save_decoding(folder: Path) -> pd.DataFrame:
    result = decode_codes(drawn_codes(0), drawn_codes(0, instances=1), ["rule"], controls=False,
                          n_bootstrap=100, allow_overlap="combinations", layers=[1],
                          pairs=["response->response"])
    result.save(folder, figures=False)
    return result.table


def test_a_run_shows_probes_beside_controls_cosines_and_training(run: Run) -> None:
    table = save_decoding(run.path / "results" / "decoding")
    test = shown("model", model="runs/tiny", steps="log")
    assert not test.error
    figures = charts(test)
    assert list(figures) == ["decoding", "differences", "cosines", "training"]
    figure = figures["decoding"]
    assert [trace.name for trace in figure.data] == ["latent code", "shuffled labels"]
    expected = table[(table["metric"] == "accuracy") & (table["features"] == "code")].iloc[0]
    code = figure.data[0]
    assert list(code.y) == [pytest.approx(expected["value"])]
    assert list(code.error_y.array) == [pytest.approx(expected["high"] - expected["value"])]
    assert list(code.error_y.arrayminus) == [pytest.approx(expected["value"] - expected["low"])]
    assert figure.layout.shapes[0].y0 == pytest.approx(expected["chance"])
    figure = figures["training"]
    assert figure.layout.xaxis.type == "log"
    metrics = run.metrics()
    for split in ("train", "ood"):
        rows = metrics[(metrics["metric"] == "accuracy") & (metrics["split"] == split)]
        trace = next(t for t in figure.data if t.name == split)
        np.testing.assert_allclose(trace.y, rows["mean"])
    assert f"{run.latest().loc['accuracy', 'ood']:.3f}" in text(test)
    panels = [annotation.text for annotation in figure.layout.annotations]
    assert panels == ["accuracy", "feature accuracy", "loss"]
    assert any("feature_accuracy[sum]" in table.value.index for table in test.dataframe)
    # A damaged result is named, and the rest is shown.
    assert set(saved_results(entry("runs/tiny"))) == {"decoding"}
    (run.path / "results" / "decoding" / "table.parquet").write_text("layer\n1\n")
    test = shown("model", model="runs/tiny")
    assert "table.parquet" in test.warning[0].value
    assert "No probes yet" in text(test)
    assert "training" in charts(test)


def test_a_run_without_results_is_probed_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.probes.decoding.decode",
                        partial(decode, n_train=256, n_heldout=256, layers=[0]))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    test = shown("model", model="runs/tiny")
    assert "No probes yet" in text(test)
    test.button(key="probe").click().run(timeout=60)
    assert not test.exception
    assert not test.error
    names = {trace.name for trace in charts(test)["decoding"].data}
    assert names == {"latent code", "residual stream", "untrained model", "shuffled labels"}
    kept = computed_results(entry("runs/tiny")) / "decoding" / "decoding.json"
    assert kept.is_file()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_other_results_are_shown_with_their_summary_and_figure(codes: Path) -> None:
    result = similarity(drawn_codes(), label="rule", controls=False, n_bootstrap=100)
    result.save(codes / "results" / "similarity", figures=False)
    test = shown("model", model="runs/codes")
    names = [name.replace("_", " ") for name in result.summary().columns if name != "features"]
    assert list(test.table[0].value.columns) == names
    assert "In every row: features code." in [caption.value for caption in test.caption]
    assert "Heads that a code uses" in text(test)
    assert len(test.image) == 1


def test_a_probe_of_one_s_own_is_among_them(
    codes: Path, own_names: Callable[[], None]
) -> None:
    @lc.register_probe("size", sentence=lambda result: "Codes have a size.")
    def size(points: lc.Points) -> np.ndarray:
        """How large are codes?"""
        return np.abs(points.x).sum(axis=1)

    result = size(drawn_codes(), labels="rule", controls=False, n_bootstrap=100)
    result.save(codes / "results" / "size", figures=False)
    own_names()  # an explorer that was not told to import it
    test = shown("model", model="runs/codes")
    assert not test.error
    assert "Size: How large are codes?" in text(test)
    assert "Codes have a size." in text(test)


def test_decodings_of_more_than_codes_are_results_among_others(codes: Path) -> None:
    names = {"code": "row", "shuffled": "shuffled row", "untrained": "untrained row"}
    decoded = DecodingResult.load(GOLDEN / "frozen" / "decoding")
    replace(decoded, table=decoded.table.replace({"features": names})).save(
        codes / "results" / "rows", figures=False)
    test = shown("model", model="runs/codes")
    assert {"features", "trained", "untrained", "shuffled"} <= set(test.table[0].value.columns)
    assert "No probes yet" in text(test)


@pytest.mark.parametrize(("metric", "means", "axis"), [
    ("perplexity", [364.0, 14.0], "log"), ("query_loss", [5.9, 0.5], "log"),
    ("loss", [2.0, -0.1], None), ("accuracy", [0.1, 1.0], (-0.03, 1.03)),
    ("r2", [-8.0, 0.9], (-0.03, 1.03)), ("points", [1.0, 40.0], None),
    ("perplexity", [float("inf"), 3.0], "log"), ("r2", [float("nan"), 0.9], (-0.03, 1.03)),
    ("log_likelihood", [-9.0, -3.0], None)])
def test_every_metric_lies_in_its_panel(
    metric: str, means: list[float], axis: str | tuple[float, float] | None
) -> None:
    rows = pd.DataFrame({"step": [1, 1_000], "split": "ood", "se": 0.0, "metric": metric,
                         "mean": means})
    drawn = training_chart(rows, log_steps=False, dark=False).layout.yaxis
    assert (drawn.type or drawn.range) == axis


def test_the_matrix_is_that_of_the_mean_codes(codes: Path) -> None:
    test = shown("model", model="runs/codes", centring="raw", label="rule_0")  # another name
    assert not test.warning
    assert "Two codes of the same rule have a mean raw cosine of" in text(test)
    assert "labels shuffled among instances" in text(test)
    (matrix,) = charts(test).values()
    means = drawn_codes().mean_by("rule", layer=1, pair="response->response")
    order = list(matrix.layout.xaxis.ticktext)
    assert sorted(order) == sorted(RULES)
    expected = cosine_matrix(means.loc[order].to_numpy(dtype=np.float64))
    apart = np.where(np.eye(len(order), dtype=bool), np.nan, expected)
    np.testing.assert_allclose(np.asarray(matrix.data[0].z, dtype=float), apart, atol=1e-6)


def test_it_says_for_which_values_codes_are_no_more_alike_than_shuffled() -> None:
    table = pd.DataFrame({"cosine": [0.5, 0.02, 0.3], "shuffled": [0.1, 0.05, 0.3]},
                         index=["sum", "a*b", "constant"])
    said = within_sentence(table, "rule", "centred")
    assert "**For 2 of 3 values** it is no more than with labels shuffled" in said
    assert "a\\*b (0.02, shuffled up to 0.05), constant (0.30, shuffled up to 0.30)." in said
    assert "**For every value** that is more" in within_sentence(
        table.assign(shuffled=-1.0), "rule", "centred")
    none = within_sentence(table.assign(shuffled=1.0), "rule", "centred")
    assert "**For every value** it is no more" in none


def test_a_value_of_like_codes_exceeds_shuffled_labels() -> None:
    rng = np.random.default_rng(0)
    values = pd.Series(["alike"] * 60 + ["any"] * 60 + ["once"])
    points = rng.normal(size=(121, 6))
    points[:60] += [6.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    unit = unit_vectors(points)
    table = same_value_cosines(unit, values)
    assert list(table.index) == ["alike", "any"]  # no two codes have the third value
    for value in table.index:
        mine = unit[values == value]
        pairs = (mine @ mine.T)[np.triu_indices(len(mine), 1)]
        assert table.loc[value, "cosine"] == pytest.approx(pairs.mean())
    assert table.loc["alike", "cosine"] > table.loc["alike", "shuffled"] + 0.2
    assert table.loc["any", "cosine"] < table.loc["any", "shuffled"]
