"""Does the page of decoding show what was found, with its controls?"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from decoded_codes import decode_codes
from small_app import charts, drawn_codes, shown, text

from latentcode.app.data.loaded import computed_results, entry, saved_results
from latentcode.probes.decoding import decode
from latentcode.runs import Run


def save_decoding(folder: Path) -> pd.DataFrame:
    result = decode_codes(drawn_codes(0), drawn_codes(0, instances=1), ["rule"], controls=False,
                          n_bootstrap=100, allow_overlap="combinations", layers=[1],
                          pairs=["response->response"])
    result.save(folder, figures=False)
    return result.table


def test_scores_stand_beside_their_controls(run: Run) -> None:
    table = save_decoding(run.path / "results" / "decoding")
    test = shown("decode", model="runs/tiny")
    figure = charts(test)["decoding"]
    assert [trace.name for trace in figure.data] == ["latent code", "shuffled labels"]
    expected = table[(table["metric"] == "accuracy") & (table["features"] == "code")].iloc[0]
    code = figure.data[0]
    assert list(code.y) == [pytest.approx(expected["value"])]
    assert list(code.error_y.array) == [pytest.approx(expected["high"] - expected["value"])]
    assert list(code.error_y.arrayminus) == [pytest.approx(expected["value"] - expected["low"])]
    assert figure.layout.shapes[0].y0 == pytest.approx(expected["chance"])


def test_a_run_without_results_is_probed_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.probes.decoding.decode",
                        partial(decode, n_train=256, n_heldout=256, layers=[0]))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    test = shown("decode", model="runs/tiny")
    assert "No probes yet" in text(test)
    test.button(key="probe").click().run(timeout=60)
    assert not test.exception
    assert not test.error
    names = {trace.name for trace in charts(test)["decoding"].data}
    assert names == {"latent code", "residual stream", "untrained model", "shuffled labels"}
    kept = computed_results(entry("runs/tiny")) / "decoding" / "decoding.json"
    assert kept.is_file()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_results_of_the_run_are_found_and_damaged_ones_named(run: Run) -> None:
    save_decoding(run.path / "results" / "decoding")
    test = shown("decode", model="runs/tiny")
    assert "What can be decoded" in text(test)
    assert set(saved_results(entry("runs/tiny"))) == {"decoding"}
    (run.path / "results" / "decoding" / "table.parquet").write_text("layer\n1\n")
    test = shown("decode", model="runs/tiny")
    assert "table.parquet" in test.warning[0].value
    assert "No probes yet" in text(test)
