"""`latentcode value-networks` on a small run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.value_networks import ValueNetworksResult


def test_value_networks(
    run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["value-networks", str(run.path), "--labels", "term_1", "--n", "128", "--n-inputs", "16",
          "--layers", "1", "--out", str(tmp_path / "networks")])
    assert f"wrote result {tmp_path / 'networks'}" in capsys.readouterr().out
    result = ValueNetworksResult.load(tmp_path / "networks")
    assert set(result.networks["layer"]) == {1}
    assert set(result.networks["label"]) == {"term_1"}
    assert len(list((tmp_path / "networks").glob("term_1-*.png"))) == result.networks[
        "class"].nunique()


def test_errors(run: lc.Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    out, taken = tmp_path / "x", tmp_path / "taken"
    taken.mkdir()
    (taken / "value_networks.json").write_text("{}")
    for arguments, message in (
        ([run.path, "--labels", "terms", "--out", out], "several columns"),
        ([run.path, "--out", taken], "exists already"),
        ([tmp_path / "nowhere", "--out", out], "nowhere"),
    ):
        assert message in refused("value-networks", *arguments)
    assert not out.exists()
