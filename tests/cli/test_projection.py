"""`latentcode project | value-networks` on small runs: they write what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.projection.result import ProjectionResult
from latentcode.probes.value_networks.result import ValueNetworksResult


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    return lc.train(lc.preset("smoke", "logic", "softmax"),
                    tmp_path_factory.mktemp("runs") / "softmax", progress=False)


def test_project_a_run_then_its_codes(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    main(["project", str(run.path), "--method", "pca", "--splits", "ood", "train", "--n", "60",
          "--out", str(tmp_path / "of_run")])
    assert f"wrote result {tmp_path / 'of_run'}" in capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "of_run" / "coordinates.parquet")
    assert {"projection_x", "projection_y", "term_1", "term_2", "combination"} <= set(table)
    assert table.groupby(["split", "layer"]).size().eq(60).all()
    settings = json.loads((tmp_path / "of_run" / "projection.json").read_text())["settings"]
    assert settings["method"]["name"] == "pca"
    assert settings["labels"] == ["term_1", "term_2"]
    assert {"trustworthiness", "points"} <= set(settings["quality"][0])
    assert (tmp_path / "cache").is_dir()

    for split in ("ood", "train"):
        main(["extract", str(run.path), "--split", split, "--n", "80", "--inputs",
              "fixed_context", "--out", str(tmp_path / split)])
    main(["project", str(tmp_path / "ood"), str(tmp_path / "train"), "--method", "pca", "--label",
          "term_1", "--n", "60", "--out", str(tmp_path / "of_codes")])
    first, second = (ProjectionResult.load(tmp_path / name) for name in ("of_run", "of_codes"))
    pd.testing.assert_frame_equal(first.quality, second.quality)  # the same codes


def test_value_networks(
    run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["value-networks", str(run.path), "--label", "term_1", "--n", "128", "--n-inputs", "16",
          "--layers", "1", "--out", str(tmp_path / "networks")])
    assert f"wrote result {tmp_path / 'networks'}" in capsys.readouterr().out
    result = ValueNetworksResult.load(tmp_path / "networks")
    assert set(result.networks["layer"]) == {1}
    assert set(result.networks["label"]) == {"term_1"}
    assert len(list((tmp_path / "networks").glob("term_1-*.png"))) == result.networks[
        "class"].nunique()


def test_no_choice_is_silently_ignored(
    run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    out = ["--out", str(tmp_path / "x")]
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "projection.json").write_text("{}")
    main(["extract", str(run.path), "--n", "20", "--out", str(tmp_path / "codes")])
    codes = str(tmp_path / "codes")
    for arguments, message in (
        (["project", str(run.path), "--method", "pca", "--perplexity", "3", *out],
         "unknown setting of pca 'perplexity'"),
        (["project", codes, *out], "no --label is given"),
        (["project", codes, "--label", "term_1", "--splits", "train", *out],
         "have their own split"),
        (["project", codes, str(run.path), "--label", "term_1", *out], "2 folders are given"),
        (["project", str(run.path), "--n", "0", *out], "--n is 0"),
        (["project", codes, "--label", "rule", *out], "unknown label 'rule'"),
        (["project", codes, "--label", "term_1", *out], "perplexity is 30 for 20 points"),
        (["project", codes, "--label", "term_1", "--out", str(taken)], "exists already"),
        (["value-networks", str(run.path), "--label", "terms", *out], "several columns"),
        (["value-networks", str(run.path), "--out", str(taken)], "exists already"),
        (["value-networks", str(tmp_path / "nowhere"), *out], "nowhere"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split()), arguments
    assert not (tmp_path / "x").exists()
