"""The pretrained path from the command line, on a model saved to a local folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main

PLACES = ("France", "Italy", "Peru", "Kenya")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Questions of two kinds about places, each kind in six wordings that are held out as such."""
    rows = [
        {"prompt": f"{opening}the {kind} {of} {place} is", "query": -1, "key": kind,
         "label": kind, "combination": f"{opening}{of}"}
        for opening in ("", "Then ", "We asked: ") for of in ("of", "in") for place in PLACES
        for kind in ("capital", "river")]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_extract_prompts(
    small_models: SmallModels, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(small_models("llama")), tmp_path / "codes"
    main(["extract-prompts", folder, str(prompts), "--out", str(out), "--residuals",
          "--layers", "1", "--batch-size", "8"])
    assert f"wrote codes {out}" in capsys.readouterr().out
    codes = lc.LatentCodes.load(out)
    assert codes.scores.shape == (48, 1, 1, 4)
    assert codes.residuals is not None
    assert codes.meta["untrained"] is False
    assert set(codes.labels["label"]) == {"capital", "river"}
    main(["show", str(out)])
    assert "llama" in capsys.readouterr().out
    main(["extract-prompts", folder, str(prompts), "--out", str(tmp_path / "fresh"),
          "--untrained", "--seed", "1", "--dtype", "bfloat16"])
    fresh = lc.LatentCodes.load(tmp_path / "fresh")
    assert (fresh.meta["untrained"], fresh.meta["seed"]) == (True, 1)
    assert (fresh.select(layer=1, pair="query->key") != codes.select(
        layer=1, pair="query->key")).any()


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_probe_prompts_with_all_controls(
    architecture: str, small_models: SmallModels, prompts: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "result"
    main(["probe-prompts", str(small_models(architecture)), str(prompts), "--out", str(out),
          "--layers", "1", "--heldout", "0.5"])
    shown = capsys.readouterr().out
    assert f"wrote result {out}" in shown
    result = lc.DecodingResult.load(out)
    table = result.table[result.table["metric"] == "accuracy"].set_index("source")
    assert set(table.index) == {"code", "residual", "untrained", "shuffled"}
    assert (table["n_heldout_combinations"] == 3).all()
    assert (table["n_train"] == 24).all()
    assert result.settings["train"]["split"] == "train"
    assert result.settings["heldout"]["split"] == "ood"
    # The key's token is another one for each label, and the code is a score of that token.
    assert table.loc["code", "value"] > table.loc["shuffled", "value"]
    assert (out / "figure.png").stat().st_size > 1_000


def test_errors_are_one_line_and_nothing_is_written(
    small_models: SmallModels, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(small_models("gpt2")), tmp_path / "out"
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "Lima is", "query": -1, "key": "Rome", "label": "a"}\n')
    for arguments, message in (
        (["extract-prompts", str(tmp_path / "nowhere"), str(prompts)], "does not exist"),
        (["extract-prompts", "somebody/no-such-model", str(prompts)], "could not be had"),
        (["extract-prompts", folder, str(tmp_path / "nowhere.jsonl")], "cannot be read"),
        (["extract-prompts", folder, str(bad)], "'Rome', which does not occur"),
        (["extract-prompts", folder, str(prompts), "--layers", "5"], "unknown layer 5"),
        (["extract-prompts", folder, str(prompts), "--device", "cuda:99"], "device"),
        (["probe-prompts", folder, str(prompts), "--labels", "colour"], "unknown label 'colour'"),
        (["probe-prompts", folder, str(bad)], "cannot be held out"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--out", str(out)])
        assert stopped.value.code == 2
        error = capsys.readouterr().err.strip()
        assert message in error, arguments
        assert len(error.splitlines()) == 1, error
        assert not out.exists()
    out.mkdir()
    (out / "meta.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["extract-prompts", folder, str(prompts), "--out", str(out)])
    assert "exists already" in capsys.readouterr().err
