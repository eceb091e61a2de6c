"""Does the page of results show what was found, with its controls, and what the codes say?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from small_app import RULES, drawn_codes, open_folders, plain
from small_zoo import tiny_run
from streamlit.testing.v1 import AppTest

from latentcode.app.data import loaded as data
from latentcode.app.pages.probes import CELL, MATRIX_KEY, best_layers
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.of_run import decode
from latentcode.probes.similarity.measures import cosine_matrix
from latentcode.probes.similarity.of_codes import similarity_codes
from latentcode.runs import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return tiny_run(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture
def run(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A trained run without results."""
    copy = trained.publish(tmp_path / "runs" / "tiny")
    open_folders(monkeypatch, tmp_path / "cache", [tmp_path / "runs"])
    return copy


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of codes, with the result of a comparison of their labels."""
    folder = drawn_codes().save(tmp_path / "runs" / "codes")
    open_folders(monkeypatch, tmp_path / "cache", [tmp_path / "runs"])
    return folder


def script() -> None:
    from latentcode.app.pages.probes import page

    page()


def shown(model: str, **query: str) -> AppTest:
    test = AppTest.from_function(script, default_timeout=60)
    test.query_params["model"] = model
    for name, value in query.items():
        test.query_params[name] = value
    return test.run()


def charts(test: AppTest) -> list[go.Figure]:
    return [go.Figure(plain(json.loads(chart.proto.spec))) for chart in test.get("plotly_chart")]


def text(test: AppTest) -> str:
    return "\n".join(part.value for part in [*test.markdown, *test.caption])


def save_decoding(folder: Path) -> pd.DataFrame:
    result = decode_codes(drawn_codes(0), drawn_codes(0, instances=1), ["rule"], controls=False,
                    n_bootstrap=100, pairs=["response->response"], layers=[1])
    result.save(folder, figures=False)
    return result.table


def test_scores_stand_beside_their_controls(run: Run) -> None:
    table = save_decoding(run.path / "results" / "decoding")
    test = shown("runs/tiny")
    assert not test.exception
    figure = charts(test)[0]
    assert [trace.name for trace in figure.data] == ["latent code", "shuffled labels"]
    expected = table[(table["metric"] == "accuracy") & (table["source"] == "code")].iloc[0]
    code = figure.data[0]
    assert list(code.y) == [pytest.approx(expected["value"])]
    assert list(code.error_y.array) == [pytest.approx(expected["high"] - expected["value"])]
    assert list(code.error_y.arrayminus) == [pytest.approx(expected["value"] - expected["low"])]
    assert figure.layout.shapes[0].y0 == pytest.approx(expected["chance"])
    assert "Without controls: residual, untrained" in text(test)
    assert "latent code" in test.dataframe[0].value.columns


def test_the_best_layer_is_named_with_its_controls() -> None:
    rows = [{"label": "rule", "metric": "accuracy", "layer": layer, "source": source,
             "value": value, "low": value - 0.1, "high": value + 0.1, "chance": 0.2}
            for layer, source, value in ((0, "code", 0.3), (1, "code", 0.6), (2, "code", 0.5),
                                         (0, "residual", 0.9), (1, "residual", 0.7))]
    assert best_layers(pd.DataFrame(rows)) == (
        "**rule**: accuracy 0.60 [0.50, 0.70] from the code of layer 1, the best of 3; residual "
        "stream 0.70, chance 0.20")


def test_a_run_without_results_is_probed_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.probes.decoding.of_run.decode",
                        partial(decode, n_train=256, n_heldout=256, layers=[0]))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    test = shown("runs/tiny")
    assert "No probes yet" in text(test)
    test.button(key="probe").click().run(timeout=60)
    assert not test.exception
    assert not test.error
    names = {trace.name for trace in charts(test)[0].data}
    assert names == {"latent code", "residual stream", "untrained model", "shuffled labels"}
    kept = data.computed_results(data.source("runs/tiny")) / "decoding" / "decoding.json"
    assert kept.is_file()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_results_of_a_study_beside_the_run_are_found(run: Run) -> None:
    save_decoding(run.path.parent / "results" / "tiny-0123abcd" / "decoding")
    save_decoding(run.path.parent / "results" / "tiny,seed=1-0123abcd" / "other")
    test = shown("runs/tiny")
    assert "What can be read out" in text(test)
    assert set(data.results(data.source("runs/tiny"))) == {"decoding"}


def test_a_damaged_result_is_a_message(run: Run) -> None:
    save_decoding(run.path / "results" / "decoding")
    (run.path / "results" / "decoding" / "table.csv").write_text("layer\n1\n")
    test = shown("runs/tiny")
    assert not test.exception
    assert "table.csv" in test.warning[0].value
    assert "No probes yet" in text(test)


def test_the_matrix_is_that_of_the_mean_codes(codes: Path) -> None:
    test = shown("runs/codes", centring="raw")
    assert not test.exception
    matrix, bars = charts(test)
    means = drawn_codes().mean_by("rule", layer=1, pair="response->response")
    order = list(matrix.layout.xaxis.ticktext)
    assert sorted(order) == sorted(RULES)
    expected = cosine_matrix(means.loc[order].to_numpy(dtype=np.float64))
    np.testing.assert_allclose(np.asarray(matrix.data[0].z, dtype=float), expected, atol=1e-6)
    # At first the most alike values are shown.
    one, other = (trace.name for trace in bars.data[:2])
    off = expected - 2.0 * np.eye(len(order))
    assert expected[order.index(one), order.index(other)] == pytest.approx(off.max())
    np.testing.assert_allclose(bars.data[0].y, means.loc[one], atol=1e-6)


def test_a_cell_shows_its_two_codes_and_their_difference(codes: Path) -> None:
    similarity_codes(drawn_codes(), "rule", controls=False, n_bootstrap=100).save(
        codes / "results" / "similarity", figures=False)
    test = shown("runs/codes", view="Similar labels", **{CELL: "sum~constant"})
    assert not test.exception
    matrix, bars = charts(test)
    means = drawn_codes().mean_by("rule", layer=1, pair="response->response")
    assert [trace.name for trace in bars.data[:2]] == ["sum", "constant"]
    np.testing.assert_allclose(bars.data[2].y, means.loc["sum"] - means.loc["constant"], atol=1e-6)
    frame = matrix.layout.shapes[0]
    names = list(matrix.layout.xaxis.ticktext)
    assert (frame.y0 + 0.5, frame.x0 + 0.5) == (names.index("sum"), names.index("constant"))
    assert "Saved result of 90 instances" in text(test)


def test_a_clicked_cell_comes_into_the_url(codes: Path) -> None:
    def click() -> None:
        from latentcode.app.pages import probes as results

        results._noted(["a", "b", "c"])()

    test = AppTest.from_function(click)
    test.session_state[MATRIX_KEY] = {"selection": {
        "points": [{"customdata": {"0": 5.0, "1": 0.3}}], "lasso": [], "box": []}}
    test.run()
    assert not test.exception
    assert test.query_params[CELL] == "b~c"


def test_a_layer_that_knows_nothing_is_said_to(codes: Path) -> None:
    test = shown("runs/codes", layer="0", view="Similar labels")
    assert not test.exception
    assert "the same code" in test.info[0].value
    assert charts(test) == []


def test_training_begins_with_the_metric_that_is_quoted_first(run: Run) -> None:
    test = shown("runs/tiny", view="Training", steps="log")
    assert not test.exception
    figure = charts(test)[0]
    assert figure.layout.annotations[0].text == "accuracy"
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


def test_other_results_are_shown_with_their_summary(codes: Path) -> None:
    result = similarity_codes(drawn_codes(), "rule", controls=False, n_bootstrap=100)
    result.save(codes / "results" / "similarity", figures=False)
    test = shown("runs/codes", view="Other results")
    assert not test.exception
    assert list(test.dataframe[0].value.columns) == list(result.summary().columns)
    assert "Heads that a code uses" in text(test)
    assert len(test.image) == 1
